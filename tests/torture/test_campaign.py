"""A sample of the campaign that `make torture` runs: kills, full disks, damaged files, two commands at once."""

import random
import shutil
import sys

import mutations
import pytest
from forked_commands import ForkServer
from mutation_subjects import SUBJECTS
from soak import soak
from verbs import ENTRIES, VERBS
from workbench import Workbench

QUICK = ("collect", "convert", "train", "export-lewm", "import-lewm", "publish")


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs LD_PRELOAD and a C compiler")
def test_a_command_that_was_disturbed_is_repeated_as_if_nothing_had_been(tmp_path):
    draw, wrong, kills, messages = random.Random(0), [], 0, 0
    with ForkServer(ENTRIES) as server:
        bench = Workbench(server, tmp_path.resolve())
        for verb in (verb for verb in VERBS if verb.name in QUICK):
            known = bench.undisturbed(verb)
            killed, problems = bench.disturb(verb, draw.choice(("kill", "tear")), draw.randint(1, known.steps))
            wrong += problems
            kills += killed.status == -9
            full, problems = bench.disturb(verb, "size", draw.randrange(known.written))
            wrong += problems
            messages += "the disk is full" in full.said
        killed, problems = bench.kill_after(VERBS[0], bench.seconds["collect"] / 2)
        wrong += problems
    assert not wrong, "\n".join(map(str, wrong))
    assert kills == len(QUICK)
    assert messages >= len(QUICK) - 1  # one may have been done before


@pytest.mark.parametrize("name", SUBJECTS)
def test_damaged_files_are_refused_by_name_or_read_as_before(name, tmp_path):
    subject, sound = SUBJECTS[name], tmp_path / "sound"
    sound.mkdir()
    subject.make(sound)
    expected = mutations.as_bytes(subject.use(sound)[0])
    cases = [mutations.run_case(name, subject, sound, expected, 1, i, tmp_path / "case") for i in range(10)]
    assert [case for case in cases if mutations.is_fault(case, subject)] == []
    assert any(case.outcome == "refused" for case in cases)


def test_planning_many_episodes_takes_no_more_than_planning_few():
    num_episodes, grown = soak(300, seconds=300)
    assert num_episodes == 300
    assert not grown
