"""What the command line says of itself, and of words it does not know."""

import itertools
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from alewm.cli.main import VERBS, flags_of
from alewm.cli.start import FLOORS
from alewm_lab.cli.main import VERBS as LAB_VERBS

ROOT = Path(__file__).parents[2]
ALL_VERBS = {name: verb for group in VERBS.values() for name, (verb, _) in group.items()}


def helped(capsys, monkeypatch, *arguments, columns=80):
    import alewm.cli.main

    monkeypatch.setattr(sys, "argv", ["alewm", *arguments, "--help"])
    monkeypatch.setenv("COLUMNS", str(columns))
    with suppress(SystemExit):
        alewm.cli.main.main()
    return capsys.readouterr().out


def test_the_overview_is_one_screen_with_a_line_per_verb(capsys, monkeypatch):
    lines = helped(capsys, monkeypatch).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 90
    for name in ALL_VERBS:
        assert sum(line.startswith(f"  {name} ") for line in lines) == 1


@pytest.mark.parametrize("name", ALL_VERBS)
def test_the_help_of_a_verb_shows_no_python(capsys, monkeypatch, name):
    said = helped(capsys, monkeypatch, name)
    assert "{None" not in said
    assert "(default: None)" not in said
    assert not re.search(r"--(\w+), --no-\1\b", said)
    for flag in flags_of(ALL_VERBS[name]):
        assert flag in said


@pytest.mark.parametrize("columns", [80, 120])
def test_help_is_wrapped_to_the_terminal_and_not_where_its_source_is(capsys, monkeypatch, columns):
    lines = helped(capsys, monkeypatch, "train", columns=columns).splitlines()
    assert max(map(len, lines)) == columns
    left = next(line.index("The task, for") for line in lines if "The task, for" in line)
    room, num_wrapped = columns - left - len(" |"), 0
    for line, following in itertools.pairwise(lines):
        told, goes_on = line[left:-2].strip(), following[left:-2].split()
        is_flag_alone, is_another_flag = (
            line[2:].startswith("--") and line[left - 1] != " ",
            following[1:left].strip("│ "),
        )
        if told and goes_on and not is_flag_alone and not is_another_flag:
            assert len(f"{told} {goes_on[0]}") > room
            num_wrapped += 1
    assert num_wrapped > 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("eval",), "unknown verb 'eval'. Did you mean `alewm evaluate`?"),
        (("trian", "two-room"), "Did you mean `alewm train`?"),
        (("train", "two-room", "--epochs", 3), "`alewm train` has no flag --epochs. Did you mean --steps?"),
        (("evaluate", "run", "--capcity", 8), "`alewm evaluate` has no flag --capcity. Did you mean --capacity?"),
        (("evaluate", "run", "--capcity=8"), "no flag --capcity. Did you mean --capacity?"),
        (("train", "two-room", "--dynamics", 8), "has no flag --dynamics. It is a flag of evaluate."),
        (("train", "two-room", "--width", 100), "--width is one of tiny, 96, 192, 384; got '100'."),
        (("evaluate", "run", "--search=random"), "--search is one of cem, icem, mppi, gradient; got 'random'."),
        (("train", "two-room", "more"), "does not know what 'more' is for"),
        (("bench", "planner", "--capacitis", 8), "Did you mean --capacities?"),
    ],
)
def test_unknown_words_get_one_line_with_the_nearest(refused, arguments, message):
    said = refused(*arguments)
    assert message in said
    assert len(said.splitlines()) == 1


def test_no_two_verbs_of_a_command_share_a_name():
    for groups in (VERBS, LAB_VERBS):
        names = [name for verbs in groups.values() for name in verbs]
        assert len(names) == len(set(names))


def test_tasks_shows_the_floors_of_the_page_and_draws_pictures(alewm_here, tmp_path):
    said = alewm_here("tasks", "--pictures", "drawn")
    page = (ROOT / "docs/tasks.md").read_text()
    rows = {
        "two-room": "| Two-Room |",
        "push-t": "| Push-T, our expert |",
        "reacher": "| Reacher |",
        "cube": "| Cube, one",
    }
    for name, (at_random, nothing) in FLOORS.items():
        row = next(line for line in page.splitlines() if line.startswith(rows[name])).split("|")
        assert [float(cell.split("%")[0]) for cell in row[5:7]] == [at_random, nothing]
        assert f"{at_random:.1f} %" in said
    assert (tmp_path / "drawn/two-room.png").is_file()


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM"])
def test_a_signal_while_the_command_line_loads_is_one_line(signal_name):
    """The signal is sent from within the first import that is not ours, which is as early as one can be sure of."""
    code = (
        "import os, signal, sys\n"
        "class Sends:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == 'tyro': os.kill(os.getpid(), signal.{signal_name})\n"
        "sys.meta_path.insert(0, Sends())\n"
        "sys.argv = ['alewm', 'tasks']\n"
        "from alewm.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == {"SIGINT": 130, "SIGTERM": 143}[signal_name]
    assert done.stderr == "\nalewm: interrupted. Nothing of this command was kept; repeat it to start again.\n"
