"""`alewm-lab cell`: everything that is asked of one model of the main table, while its weights are there."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from alewm.cli.flags import Maybe
from alewm.cli.train import Train

if TYPE_CHECKING:
    import torch

    from alewm.capacity.support import CapacitySupport
    from alewm.evaluation.settings import EvaluationSettings


@dataclass(frozen=True)
class CellJob(Train):
    """Train one model of the main table and do everything about it at once.

    After training come the 200 and the 1,000 test pairs, validation pairs, every imposed capacity and the full goal
    cost where there are prefixes, probes, distilled dynamics with their success, and a decoder with its picture.
    `alewm-lab publish RUN --out results/NAME` then writes all numbers to one file. Takes the options of `alewm train`.
    Repeating the command continues; what is there is not made again.
    """

    share: Maybe[Path] = None
    """Also write the weights in bfloat16 to this new folder (`alewm share`), for one seed per cell."""
    candidates: int = 300
    """CEM: action sequences scored per iteration."""
    iterations: int = 30
    """CEM: times the distribution is refined."""
    fit_frames: int = 20_000
    """Frames of training episodes that probes and the decoder are fitted to, at most."""
    fit_updates: int = 3_000
    """Updates of each probe, of each distilled network and of the decoder."""

    WHEN_INTERRUPTED: ClassVar[str] = "What is finished is kept; repeat the command to continue."

    def run(self) -> None:
        """Makes what is missing, and prints the folder of the run."""
        from alewm.devices import find_device
        from alewm.evaluation.decoder import DecodeConfig, decode
        from alewm.evaluation.distill_run import distill
        from alewm.evaluation.probes import probe_run
        from alewm.interop.pretrained import share_run
        from alewm.training.checkpoint import latest_checkpoint, read_description
        from alewm.training.distill import DistillConfig

        run, device = self.trained(), find_device(self.device)
        support = read_description(latest_checkpoint(run)).config.model.support
        usual, *others = self._evaluations(support)
        _evaluate(run, usual, device, num_animations=4)
        for settings in others:
            _evaluate(run, settings, device)
        if not (run / "measurements" / "probes.json").is_file():
            amounts = {"num_train": self.fit_frames, "num_test": 5_000, "num_steps": self.fit_updates}
            probe_run(run, (), amounts, data_path=None, device=device)
        distill(run, config=DistillConfig(num_updates=self.fit_updates), device=device)
        for settings in (usual, replace(usual, pairs_per_episode=5)):
            _evaluate(run, replace(settings, dynamics="distilled"), device)
        decode(run, DecodeConfig(num_updates=self.fit_updates, num_frames=self.fit_frames), device=device)
        if self.share is not None:
            share_run(run, self.share, weights="bfloat16", device=device)
            print(self.share)
        print(run)

    def _evaluations(self, support: "CapacitySupport") -> "Iterator[EvaluationSettings]":
        """The usual settings first, then the others."""
        from alewm.evaluation.settings import EvaluationSettings
        from alewm.planning.planner import PlanningConfig
        from alewm.planning.search import CEMConfig

        planning = PlanningConfig(cem=CEMConfig.with_a_tenth_elite(self.candidates, self.iterations))
        usual = EvaluationSettings(planning=planning)
        yield usual
        yield replace(usual, pairs_per_episode=5)
        yield replace(usual, split="validation")
        if len(support) > 1:
            for k in support.capacities:
                yield replace(usual, planning=replace(planning, capacity=str(k)))
            yield replace(usual, planning=replace(planning, goal_cost="full"))


def _evaluate(run: Path, settings: "EvaluationSettings", device: "torch.device", num_animations: int = 0) -> None:
    """Evaluate unless the result is there."""
    from alewm.evaluation.evaluate_run import evaluate_run, percent
    from alewm.evaluation.settings import results_folder
    from alewm.files import read_if_there

    path = results_folder(run, settings, 0, is_finished=True) / "result.json"
    found = read_if_there(path)
    if "evaluated" not in found:
        found = evaluate_run(run, settings, device=device, num_animations=num_animations).result
    name = settings.name() or "200 test pairs"
    print(f"{name}: {percent(found['success_rate'])} of {found['episodes']} pairs", file=sys.stderr)
