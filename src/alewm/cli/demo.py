"""`alewm demo`: from nothing to a world model that plans, in one command."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

Scale = Literal["full", "smoke", "large"]
"""As in `alewm.demo`, which imports torch."""


@dataclass(frozen=True)
class Demo:
    """Record Two-Room, train ALeWM and LeWM on it, plan to held-out goals with both, and write a page about it.

    Runs on the CPU, one process per model; on a GPU with --scale large. Repeating the command continues where it
    stopped.
    """

    out: Path = Path("runs/demo")
    """Folder for the data, the runs and the report; made if it does not exist."""
    seed: int = 3072
    """Decides the episodes, the first weights and all noise of training."""
    scale: Scale = "full"
    """`full` takes minutes; `smoke` is the same path in seconds, and its numbers mean nothing; `large` is ALeWM at the
    paper's size with 10,000 episodes and a short schedule, for a GPU, where it takes minutes too."""

    WHEN_INTERRUPTED: ClassVar[str] = "Finished stages and saved checkpoints are kept; repeat the command to continue."

    def run(self) -> None:
        """Does what is missing, and prints the comparison."""
        from alewm.demo import run_demo
        from alewm.evaluation.evaluate_run import success_table
        from alewm.report.page import write_report

        demo = run_demo(self.out, scale=self.scale, seed=self.seed)
        page = write_report([self.out / name for name in demo.results], self.out / "report")
        print(success_table(demo.results))
        stages = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in demo.seconds.items())
        print(f"{stages}; {sum(demo.seconds.values()) / 60:.1f} minutes in all")
        print(page)
