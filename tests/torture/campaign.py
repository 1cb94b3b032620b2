"""The campaign of faults: `python tests/torture/campaign.py --help`.

| stage          | a case                                                                                           |
|----------------|--------------------------------------------------------------------------------------------------|
| injected kills | a command killed at one of its file-system steps, or amid a write, then repeated                 |
| random kills   | a command killed at a random moment, then repeated                                               |
| full disks     | a command on a disk that is full from a step on, or takes an exact number of bytes, then repeated |
| mutations      | a damaged file that is read                                                                      |
| concurrent     | a command started twice at once, then repeated                                                   |
| signals        | a command that gets SIGINT or SIGTERM at a random moment, from its very start on, then repeated   |
| soak           | a planned episode, one of thousands in one process                                               |

The order of cases follows from the seed. Each stage ends after its number of cases, or when its share of the time is
used up. The table at the end says how many cases there were and what was wrong; the exit status is 1 if anything was.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "helpers")]

import mutations  # noqa: E402
from forked_commands import Action, ForkServer  # noqa: E402
from soak import soak  # noqa: E402
from verbs import ENTRIES, VERBS, Verb, lay_out  # noqa: E402
from workbench import Problem, Workbench  # noqa: E402

KINDS = ("stuck", "left behind", "changed", "unexplained", "traceback", "hang")
SIGNALLED = ("collect", "convert", "train", "evaluate", "distill", "share")
"""Commands that get signals: each starts a process of its own, which takes seconds."""
TOGETHER = ("collect", "convert", "train", "evaluate --out run", "distill", "share", "export-lewm", "report", "publish")


@dataclass
class Row:
    """One stage of the campaign."""

    stage: str
    cases: int = 0
    seconds: float = 0.0
    problems: Counter[str] = field(default_factory=Counter)

    def count(self, problems: Sequence[Problem]) -> None:
        """Takes in a case, and prints what was wrong with it."""
        self.cases += 1
        self.problems.update({problem.kind for problem in problems})
        for problem in problems:
            print(f"{self.stage}: {problem}", flush=True)


class Limit:
    """Until when a stage may go on."""

    def __init__(self, cases: int, seconds: float) -> None:
        self.cases, self._end = cases, time.monotonic() + seconds

    def is_reached(self, row: Row) -> bool:
        return row.cases >= self.cases or time.monotonic() > self._end


Stage = Callable[[Workbench, random.Random, Row, Limit], None]


def in_turn(verbs: Sequence[Verb]) -> Iterator[Verb]:
    """The verbs over and over, those that start processes once in sixteen turns: they take long."""
    turn = 0
    while True:
        turn += 1
        yield from (verb for verb in verbs if turn % 16 == 1 or not verb.starts_processes)


def injected_kills(bench: Workbench, draw: random.Random, row: Row, limit: Limit) -> None:
    """Every step is met once before one is met twice."""
    waiting: dict[str, list[int]] = {}
    for verb in in_turn(VERBS):
        if limit.is_reached(row):
            return
        steps = waiting.setdefault(verb.name, [])
        if not steps:
            steps.extend(draw.sample(range(1, bench.undisturbed(verb).steps + 1), bench.undisturbed(verb).steps))
        action: Action = draw.choice(("kill", "kill", "tear"))
        row.count(bench.disturb(verb, action, steps.pop())[1])


def random_kills(bench: Workbench, draw: random.Random, row: Row, limit: Limit) -> None:
    """Only commands that did not end before they were killed count."""
    for verb in in_turn(VERBS):
        if limit.is_reached(row):
            return
        bench.undisturbed(verb)
        done, problems = bench.kill_after(verb, draw.uniform(0, bench.seconds[verb.name]))
        if done.status == -signal.SIGKILL or problems:
            row.count(problems)


def full_disks(bench: Workbench, draw: random.Random, row: Row, limit: Limit) -> None:
    """Half of them full from a step on, half after an exact number of bytes."""
    for verb in in_turn(VERBS):
        if limit.is_reached(row):
            return
        known = bench.undisturbed(verb)
        if draw.random() < 0.5:
            row.count(bench.disturb(verb, "fill", draw.randint(1, known.steps))[1])
        else:
            row.count(bench.disturb(verb, "size", draw.randrange(known.written))[1])


def concurrent(bench: Workbench, draw: random.Random, row: Row, limit: Limit) -> None:
    """Two of the same command at once."""
    with ForkServer(ENTRIES) as other:
        for verb in in_turn([verb for verb in VERBS if verb.name in TOGETHER]):
            if limit.is_reached(row):
                return
            row.count(bench.run_together(verb, (bench.server, other)))


def signals(bench: Workbench, draw: random.Random, row: Row, limit: Limit) -> None:
    """As a terminal and a scheduler send them, to a process that was just started or has worked for a while."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has its children ignore interrupts
    for verb in in_turn([verb for verb in VERBS if verb.name in SIGNALLED]):
        if limit.is_reached(row):
            return
        bench.undisturbed(verb)
        lay_out(verb, bench.base, bench.root)
        number = draw.choice((signal.SIGINT, signal.SIGTERM))
        after = draw.choice((draw.uniform(0, 1), draw.uniform(0, 4 + bench.seconds[verb.name])))
        command = [sys.executable, "-m", "alewm", *verb.arguments]
        process = subprocess.Popen(
            command, cwd=bench.root, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            said = process.communicate(timeout=after)[1]
        except subprocess.TimeoutExpired:
            # A terminal interrupts the whole group, a scheduler asks the process itself to end.
            (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
            said = process.communicate(timeout=mutations.START_LIMIT_SECONDS)[1]
        place = f"{verb.name}, {number.name} after {after:.2f} s"
        # Before its first line runs, Python itself answers a signal as it sees fit.
        is_too_early = process.returncode in (-number, 1) and b"interrupted" not in said and b"alewm" not in said
        ended = (128 + number, -number)  # a shell says the same of both
        is_said = process.returncode == 0 or (process.returncode in ended and b"interrupted. " in said)
        wrong = [Problem("traceback", place, said.decode()[-400:])] if b"Traceback" in said and not is_too_early else []
        if not is_said and not is_too_early and not wrong:
            wrong.append(Problem("unexplained", place, f"status {process.returncode}: {said.decode()[-400:]}"))
        row.count(wrong + bench.repeated(verb, place))


def mutated(draw: random.Random, row: Row, limit: Limit) -> None:
    """All subjects by turns, in blocks of as many cases."""
    from mutation_subjects import SUBJECTS

    kinds = {"changed": "changed", "unnamed": "unexplained", "traceback": "traceback", "hang": "hang", "crash": "hang"}
    counts: dict[str, Counter[str]] = {name: Counter() for name in SUBJECTS}
    block, done, seed = min(500, max(1, limit.cases // len(SUBJECTS))), 0, draw.randrange(2**31)
    while not limit.is_reached(row):
        for name, subject in SUBJECTS.items():
            count = block // 5 if subject.is_slow else block
            for case in mutations.run(name, subject, seed, list(range(done, done + count))):
                counts[name][case.outcome] += 1
                problems = []
                if mutations.is_fault(case, subject):
                    place = f"{case.subject}, --seed {seed} --only {case.number}, {case.file}: {case.damage}"
                    problems = [Problem(kinds[case.outcome], place, case.message.strip()[-400:])]
                row.count(problems)
            if limit.is_reached(row):
                break
        done += block
    print(f"\n{mutations.heading()}")
    for name, found in counts.items():
        print(mutations.line(name, found))
    print(flush=True)


def soaked(row: Row, limit: Limit) -> None:
    """Episodes planned in this process; what it holds may not grow."""
    row.cases, grown = soak(limit.cases, seconds=limit._end - time.monotonic())
    if grown:
        row.problems["changed"] += 1
        print(f"soak: {grown}", flush=True)


STAGES: dict[str, tuple[int, float]] = {
    "injected kills": (300, 0.28),
    "random kills": (200, 0.18),
    "full disks": (80, 0.08),
    "mutations": (10_000, 0.24),
    "concurrent": (36, 0.04),
    "signals": (40, 0.08),
    "soak": (5_000, 0.10),
}
"""Cases of each stage, and the share of the time that it may take."""


def table(rows: Sequence[Row]) -> str:
    """One line per stage."""
    lines = [("stage", "cases", "seconds", *KINDS)]
    lines += [(r.stage, f"{r.cases:,}", f"{r.seconds:.0f}", *(str(r.problems[kind]) for kind in KINDS)) for r in rows]
    return "\n".join("".join(f"{c:<16}" if i == 0 else f"{c:>13}" for i, c in enumerate(line)) for line in lines)


def run_campaign(stages: Sequence[str], seed: int, seconds: float, share_of_cases: float = 1.0) -> list[Row]:
    """The rows of `stages`, each with its share of the seconds."""
    own: dict[str, Stage] = {
        "injected kills": injected_kills,
        "random kills": random_kills,
        "full disks": full_disks,
        "concurrent": concurrent,
        "signals": signals,
    }
    weight, rows = sum(STAGES[stage][1] for stage in stages), []
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        bench: Workbench | None = None
        for stage in stages:
            cases, share = STAGES[stage]
            row, draw, began = Row(stage), random.Random(f"{seed} {stage}"), time.monotonic()
            if stage in own and bench is None:
                bench = Workbench(stack.enter_context(ForkServer(ENTRIES)), Path(place).resolve())
            limit = Limit(max(1, round(cases * share_of_cases)), seconds * share / weight)
            if stage == "mutations":
                mutated(draw, row, limit)
            elif stage == "soak":
                soaked(row, limit)
            else:
                assert bench is not None
                own[stage](bench, draw, row, limit)
            row.seconds = time.monotonic() - began
            rows.append(row)
            print(table([row]), flush=True)
    return rows


def main() -> None:
    """Runs the campaign and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=[*STAGES], help="only these")
    parser.add_argument("--seed", type=int, default=0, help="of what is disturbed, where and how")
    parser.add_argument("--seconds", type=float, default=3600, help="for all stages together")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases of each stage")
    asked = parser.parse_args()
    rows = run_campaign(asked.stages, asked.seed, asked.seconds, asked.share)
    print(f"\n{table(rows)}")
    sys.exit(1 if any(row.problems for row in rows) else 0)


if __name__ == "__main__":
    main()
