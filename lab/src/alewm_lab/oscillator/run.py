"""A study from start to finish: groups of models trained in parallel processes, then selected, tabulated and drawn.

Each run's record is kept as soon as it exists.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from alewm.config import to_dict
from alewm.errors import InputError
from alewm.files import read_json, write_json, write_text
from alewm.progress import Progress
from alewm.runs.folder import RunFolder, save_tensors
from alewm.workers import WorkerPool, num_available_cores
from alewm_lab.oscillator.measures import Record, measure, select
from alewm_lab.oscillator.show import draw, markdown_table
from alewm_lab.oscillator.study import OscillatorRun, Study
from alewm_lab.oscillator.training import train
from alewm_lab.oscillator.world import make_splits

MAX_MODELS = 3
"""Models trained side by side in one process: more no longer fit a core's cache and gain nothing on a CPU."""


def execute(
    study: Study, folder: RunFolder, *, jobs: int, on_done: Callable[[Sequence[OscillatorRun], float], None]
) -> list[Record]:
    """One record per run, in the study's order; runs whose record is in the folder already are not repeated."""
    finished = {run: record for run in study.runs if (record := _stored(folder, run)) is not None}
    missing = Study(tuple(run for run in study.runs if run not in finished))
    for runs, seconds in _in_processes(missing.groups(MAX_MODELS), folder.path, jobs):
        for run in runs:
            record = _stored(folder, run)
            assert record is not None, f"the process that trained {run.name} left no record"
            finished[run] = record
        _write_metrics(folder, [finished[run] for run in study.runs if run in finished])
        on_done(runs, seconds)
    records = [finished[run] for run in study.runs]
    _write_metrics(folder, records)
    return records


def _write_metrics(folder: RunFolder, records: Sequence[Record]) -> None:
    """Writes all lines anew: after a kill, some records may have no line yet."""
    lines = [{"run": each["name"], "seconds": each["seconds"], "r2": each["r2_by_prefix"][-1]} for each in records]
    write_text(folder.metrics_path, "".join(f"{json.dumps(line)}\n" for line in lines))


def _in_processes(
    groups: list[list[OscillatorRun]], folder: Path, jobs: int
) -> Iterator[tuple[list[OscillatorRun], float]]:
    """(runs, seconds) of every group as it finishes."""
    workers = min(jobs, len(groups))
    if workers <= 1:
        for group in groups:
            yield group, _train_group(group, folder, torch.get_num_threads())
        return
    with WorkerPool(workers, "alewm_lab.oscillator.run") as pool:
        pending = {
            pool.submit(_train_group, group, folder, max(1, num_available_cores() // workers)): group
            for group in groups
        }
        for future in as_completed(pending):
            yield pending[future], future.result()


def _train_group(runs: list[OscillatorRun], folder: Path, num_threads: int) -> float:
    """Trains and measures runs that are alike; returns the seconds it took."""
    torch.set_num_threads(num_threads)
    began = time.perf_counter()
    splits_of = {seed: make_splits(seed) for seed in {run.seed for run in runs}}
    models, history = train(runs, {seed: splits["train"] for seed, splits in splits_of.items()})
    measured = measure(runs, models, history, splits_of)
    seconds = time.perf_counter() - began
    for row, (run, values) in enumerate(zip(runs, measured, strict=True)):
        save_tensors(folder / "checkpoints" / f"{run.name}.safetensors", models.state_of(row))
        # Models that train side by side share their time: the seconds of a run are its share.
        write_json(_record_path(folder, run), _identity(run) | values | {"seconds": seconds / len(runs)})
    return seconds


def _identity(run: OscillatorRun) -> Record:
    return {
        "name": run.name,
        "method": run.method,
        "control": run.control,
        "latent_dim": run.latent_dim,
        "seed": run.seed,
        "lambda": run.reg_weight,
        "alpha": run.prior_degree if run.chooses_capacity else None,
        "selector_rate": run.selector_rate if run.learns_capacity else None,
        "config": asdict(run),
    }


def _record_path(folder: Path, run: OscillatorRun) -> Path:
    return folder / "records" / f"{run.name}.json"


def _stored(folder: RunFolder, run: OscillatorRun) -> Record | None:
    path = _record_path(folder.path, run)
    if not path.exists():
        return None
    record = read_json(path)
    if not isinstance(record, dict) or record.get("config") != asdict(run):
        raise InputError(
            f"{path} does not describe the run {run.name}. Nothing was changed. Remove it to have the run repeated."
        )
    return record


_SWEEP_FIGURE = ("LeWM d=4", "LeWM d=6", "LeWM d=8", "ALeWM")


def run_study(study: Study, out: Path, *, jobs: int, is_sweep: bool) -> None:
    """Fills `out` with the study's records, table, figure and `result.json`."""
    folder = RunFolder(out).open(to_dict(study))
    spent = _seconds_before(folder)
    began = time.perf_counter()
    with Progress("oscillator", total=len(study.runs), unit="models") as progress:

        def on_done(runs: Sequence[OscillatorRun], seconds: float) -> None:
            progress.advance(len(runs), f"{runs[0].name} and {len(runs) - 1} more: {seconds:.0f} s")

        records = execute(study, folder, jobs=jobs, on_done=on_done)
    result: dict[str, Any] = {"runs": records, "jobs": jobs, "wall_seconds": spent + time.perf_counter() - began}
    shown = drawn = records
    if is_sweep:
        selected = select(records)
        result["selected"] = {title: [record["name"] for record in group] for title, group in selected.items()}
        shown = [record for group in selected.values() for record in group]
        drawn = [record for title in _SWEEP_FIGURE for record in selected.get(title, [])]
    table = markdown_table(shown)
    write_text(out / "table.md", table)
    draw(drawn, out)
    folder.finish(result)
    print(table)


def _seconds_before(folder: RunFolder) -> float:
    """What earlier calls took; a damaged result is reported before hours are spent, and never overwritten unseen."""
    result = folder.result()
    if not folder.result_path.exists():
        return 0.0
    if not isinstance(result.get("runs"), list):
        raise InputError(
            f"{folder.result_path} is damaged: expected an object with a list `runs`. Nothing was changed. Remove it "
            f"and repeat the command: finished runs are kept in {folder.path / 'records'}."
        )
    return float(result.get("wall_seconds", 0.0))
