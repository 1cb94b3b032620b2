"""What `alewm bench` can measure of environments; the fields are the flags."""

from dataclasses import dataclass


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
