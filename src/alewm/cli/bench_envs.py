"""What `alewm bench` can measure of environments; the fields are the flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class PushT:
    """Push-T: physics and drawing per second on one core, and the share of demonstrations that reach their pose."""

    demonstrations: int = 150
    """Nominal demonstrations of the expert."""
    seed: int = 0
    """Their seed."""

    def run(self) -> None:
        """Prints the figures and the line of JSON."""
        from alewm.envs.registration import get_task

        _ = get_task("push-t").env_class  # says which extra to install where the simulator is missing
        from alewm.benchmarks.push_t import bench_push_t

        bench_push_t(**vars(self))


@dataclass(frozen=True)
class TrueSimulator:
    """The planner without a model: success of CEM that tries its candidates out in the environment itself.

    It is what this search reaches when predictions are perfect: a pair missed here is missed for want of candidates,
    iterations or horizon, or because the cost misleads. Everything but the rollout and the cost is as in `alewm
    evaluate`; the cost is how far the end state is from the goal state, as the task measures it.
    """

    task_name: Annotated[str | None, tyro.conf.arg(name="task")] = None
    """The task; needed without --data."""
    data: Path | None = None
    """An episode file, whose test pairs are taken; if not given, episodes are simulated without drawing them."""
    behaviour: str | None = None
    """What acts in simulated episodes; if not given, the task's default."""
    episodes: int = 32
    """Pairs: of the file the first ones, or one of each simulated episode."""
    every: int = 1
    """Simulate every n-th episode only: neighbours can be copies of one demonstration (16 of Push-T's), so that 17
    gives pairs that are independent, with all strengths of noise."""
    only: tuple[int, ...] = ()
    """Only the pairs of these episodes, for example to try those again that a smaller search missed."""
    split: Literal["family", "episode"] = "family"
    """How the file's test episodes were held out, as for `alewm train`."""
    candidates: int = 100
    """CEM: action sequences tried out per iteration (300 in `alewm evaluate`, which costs nine times as much here with
    its 30 iterations)."""
    iterations: int = 10
    """CEM: times the distribution is refined."""
    elites: int | None = None
    """CEM: best candidates it is refined from; if not given, a tenth."""
    horizon: int = 5
    """Blocks of five actions planned ahead."""
    executed: int | None = None
    """Blocks executed before planning again; if not given, all of them."""
    seed: int = 42
    """Of the planner's noise and of the random actions; the default is that of `alewm evaluate`."""
    data_seed: int = 0
    """Of simulated episodes."""
    jobs: int = 0
    """Processes, an episode at a time each; 0 means one per core."""
    out: Path | None = None
    """A file for a record of every pair, a line of JSON each."""

    def run(self) -> None:
        """Prints the table, the pairs that were missed and the line of JSON."""
        from alewm.benchmarks.standard_pairs import pairs_of_file, simulated_pairs
        from alewm.benchmarks.true_simulator import bench_true_simulator
        from alewm.cli.search import asked_planning
        from alewm.errors import InputError

        planning = asked_planning(self)
        if self.episodes < 1:
            raise InputError(f"--episodes must be at least 1, got {self.episodes}.")
        if self.data is not None:
            standard = pairs_of_file(self.data, self.task_name, self.episodes, self.split)
        elif self.task_name is not None:
            standard = simulated_pairs(self.task_name, self.behaviour, self.episodes, self.data_seed, self.every)
        else:
            raise InputError("Say which task to simulate with --task, or which file's pairs to take with --data.")
        if self.only:
            standard = standard.only(self.only)
        bench_true_simulator(standard, planning, jobs=self.jobs, out=self.out)
