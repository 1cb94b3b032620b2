"""The tiles of the kernels for few rows, timed as a plan runs them: one after the other inside a CUDA graph."""

import os

import torch

from alewm.benchmarks.timing import recorded
from alewm.errors import InputError
from alewm.model.world_model import WorldModel

_CALLS = 40


def time_rollout_tiles(model: WorldModel, num_rows: int, repeats: int, where: torch.device) -> dict[str, float | str]:
    """Microseconds by kernel and tile for so many candidates, printed too; the fastest are taken from now on."""
    from alewm.model.few_rows.rollout import why_not_few_rows
    from alewm.model.few_rows.trials import few_rows_trials
    from alewm.model.fused.tiles import tile_of
    from alewm.model.fused.trials import time_tiles
    from alewm.model.prepared import PreparedWeights

    is_gpu = where.type == "cuda"
    weights = PreparedWeights(model, torch.bfloat16 if is_gpu else torch.float32)
    obstacle = why_not_few_rows(weights)
    if not is_gpu and os.environ.get("TRITON_INTERPRET") != "1":
        obstacle = f"the device is a {where.type}; set TRITON_INTERPRET=1 to try the command on a few candidates"
    if obstacle is not None:
        raise InputError(f"Tiles of kernels for few rows cannot be timed: {obstacle}.")
    num_calls = _CALLS if is_gpu else 1
    trials = {trial.kernel: trial for trial in few_rows_trials(weights, num_rows, num_calls)}
    found = time_tiles(list(trials.values()), {}, where, repeats, recorded)
    print(f"{'kernel':<24}{'rows,chunk,warps,stages,parts':<32}{'us':>8}{'TFLOP/s':>9}   * is taken")
    microseconds: dict[str, float | str] = {}
    for (kernel, tile), time in found.items():
        if isinstance(time, str):
            microseconds[f"{kernel} {tile}"] = time
            print(f"{kernel:<24}{tile!s:<32}{time}")
            continue
        microseconds[f"{kernel} {tile}"] = 1e3 * time / num_calls
        mark = " *" if tile == tile_of(kernel, trials[kernel].columns) else ""
        done = trials[kernel].num_operations / time / 1e9
        print(f"{kernel:<24}{tile!s:<32}{1e3 * time / num_calls:>8.2f}{done:>9.1f}{mark}")
    return microseconds
