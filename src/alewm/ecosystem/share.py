"""A trained model made ready for others: its folder, and its success measured with the very weights that are in it."""

from pathlib import Path

import torch

from alewm.ecosystem.pretrained import SharedRun, WeightType, fill_pretrained
from alewm.errors import InputError
from alewm.evaluation.environment import task_of
from alewm.evaluation.run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings
from alewm.files import check_new_folder, read_if_there, read_json, write_json, write_text
from alewm.planning.distilled import DISTILLED, distilled_capacities
from alewm.runs.lock import new_folder
from alewm.training.checkpoint import read_description
from alewm.training.data_sets import data_set_of
from alewm.training.run import latest_checkpoint


def share_run(run: Path, out: Path, *, weights: WeightType, device: torch.device, num_animations: int = 0) -> Path:
    """The new folder `out` with the newest weights of the finished run, evaluated as they are stored there.

    It appears when it is complete; an interrupted call leaves nothing under that name.
    """
    check_new_folder(out)
    if "training" not in read_if_there(run / "result.json"):
        raise InputError(f"{run} is no finished run: repeat its `alewm train` command to train it to its end.")
    description = read_description(latest_checkpoint(run))
    if len(description.config.data_sets) > 1:
        raise InputError(f"{run} learned from several data sets; save it with PretrainedRun (docs/ecosystem.md).")
    task_of(data_set_of(description))
    title = out.resolve().name
    with new_folder(out) as partial:
        fill_pretrained(run, SharedRun.of(run, weights), partial, weights, name=title)
        write_json(partial / "result.json", {"training": read_json(partial / "result.json")["training"]})
        evaluate_run(partial, EvaluationSettings(), device=device, num_animations=num_animations, out=partial)
        if distilled_capacities(partial / DISTILLED):
            evaluate_run(partial, EvaluationSettings(dynamics=DISTILLED), device=device, num_animations=0)
        write_text(partial / "README.md", SharedRun.of(partial, weights).card(title, partial))
    return out
