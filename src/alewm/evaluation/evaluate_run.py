"""Evaluate a run folder: its model, the stored pairs, the results left beside it, and a summary in words.

An evaluation of a shared model is compared with its published records, episode by episode.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from alewm.config import late_field_defaults
from alewm.data.store import EpisodeStore
from alewm.devices import idle_threads, simulation_device
from alewm.envs.contract import VectorGoalEnv
from alewm.errors import InputError
from alewm.evaluation.animations import ACTIONS, choose_episodes, film, write_gif
from alewm.evaluation.closed_loop import GoalPairs
from alewm.evaluation.distill_run import with_dynamics
from alewm.evaluation.held_out import drawing_of, find_pairs, task_of
from alewm.evaluation.settings import OWN_DYNAMICS, EvaluationSettings, check_same_settings, results_folder
from alewm.evaluation.success import (
    EpisodeRecord,
    Evaluation,
    Floors,
    compare_records,
    evaluate_planner,
    read_records,
    write_records,
)
from alewm.files import read_if_there, read_json, read_object, write_json
from alewm.model.world_model import WorldModel
from alewm.planning.distilled import DistilledModel
from alewm.planning.planner import Planner, choose_search
from alewm.progress import Progress
from alewm.runs.folder import RunFolder, provenance, save_tensors
from alewm.training.checkpoint import Description, data_set_of, data_sets_of, latest_checkpoint, load_world_model
from alewm.training.config import RunConfig


def success_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """One column per result, named by the mapping's keys; floors and capacities below the success."""
    columns = [{"": name, **_cells(result)} for name, result in results.items()]
    width = [max(map(len, column.values())) for column in columns]
    lines = []
    for label in columns[0]:
        cells = (column[label].rjust(w) for column, w in zip(columns, width, strict=True))
        lines.append(f"{label:<28}" + "  ".join(cells))
    return "\n".join(lines)


def comparison_lines(records: Mapping[str, Sequence[EpisodeRecord]]) -> list[str]:
    """A line per model with the same pairs as an earlier one: the paired difference."""
    first: dict[tuple[tuple[int, int], ...], str] = {}
    lines = []
    for name, other in records.items():
        ours = first.setdefault(tuple(each.pair_name for each in other), name)
        if ours == name:
            continue
        found = compare_records([records[ours]], [other])
        what = "episodes" if any(each.demonstration is None for each in other) else "demonstrations"
        lines.append(
            f"{ours} minus {name}: {found}, by {found.num_clusters} {what}; {found.won} pairs won, {found.lost} lost"
        )
    return lines


def _cells(result: Mapping[str, Any]) -> dict[str, str]:
    cem = result["planning"]["cem"]
    counts = {k: count for k, count in result["capacity_counts"].items() if count}
    return {
        "success": percent(result["success_rate"]),
        "  95 % interval": interval_in_words(result),
        "  where not solved at start": percent(result["success_rate_nontrivial"]),
        "uniform random": percent(result["random_success_rate"]),
        "doing nothing": percent(result["zero_success_rate"]),
        "recorded actions": percent(result.get("replay_success_rate")),
        "solved at the start": percent(result["presolved_share"]),
        "pairs": str(result["episodes"]),
        "mean capacity (of width)": f"{result['mean_capacity']:.3g} ({result['support'][-1]})",
        "capacities (k: episodes)": ", ".join(f"{k}: {count}" for k, count in counts.items()),
        "CEM (candidates, iterations)": f"{cem['num_candidates']}, {cem['num_iterations']}",
        "seconds": f"{result['seconds']:.1f}",
    }


def interval_in_words(result: Mapping[str, Any]) -> str:
    """The 95 % interval of a result's success, and of how many demonstrations or episodes, if pairs share them."""
    low, high = result["interval"]
    words = {"families": "demonstrations", "different_episodes": "episodes"}
    shared = [f", by {result[key]} {what}" for key, what in words.items() if key in result]
    return f"{percent(low)} to {percent(high)}{''.join(shared)}"


def percent(rate: float | None) -> str:
    """A rate as tables show it; a dash where there is none."""
    return "-" if rate is None else f"{100 * rate:.1f} %"


@dataclass(frozen=True)
class Agreement:
    """Episodes in both evaluations, and how many of them have the same outcome."""

    episodes: int
    same_outcome: int

    def __str__(self) -> str:
        return f"{self.same_outcome} of {self.episodes} episodes ended as published."


def agreement(records: Sequence[EpisodeRecord], published: Sequence[EpisodeRecord]) -> Agreement:
    """How many of `records` have the success and the capacity of the `published` record of the same pair."""
    known = {record.pair_name: record for record in published}
    common = [(record, known[record.pair_name]) for record in records if record.pair_name in known]
    return Agreement(len(common), sum((a.success, a.capacity) == (b.success, b.capacity) for a, b in common))


def agreement_with_published(
    run: Path, settings: EvaluationSettings, records: Sequence[EpisodeRecord]
) -> Agreement | None:
    """The agreement with the records in `run`; None if it has none that were made in the same way.

    The number of episodes may differ: the plan of an episode does not depend on the others.
    """
    result, path = run / "result.json", run / "episodes.jsonl"
    if not (result.is_file() and path.is_file()):
        return None
    if _without_count(read_json(result).get("evaluated", {})) != _without_count(settings.identity()):
        return None
    return agreement(records, read_records(path))


def _without_count(evaluated: dict[str, Any]) -> dict[str, Any]:
    ignored = ("num_episodes", "checkpoint", "fingerprint")
    return {name: value for name, value in evaluated.items() if name not in ignored}


EPISODES_PER_BATCH = {"cpu": 16, "cuda": 64, "mps": 64}
"""Episodes searched at once: what a processor's memory and caches hold, and what fills a GPU."""

SHARED_AS = "weights"
"""What a shared model's checkpoint says besides: the type its matrices were stored in."""


@dataclass(frozen=True, repr=False)
class EvaluatedRun:
    """What `evaluate_run` found and where it wrote it."""

    path: Path
    """The result.json."""
    result: dict[str, Any]
    """Its content."""
    agreement: Agreement | None = None
    """Of a shared model: with the records that came with it."""
    records: tuple[EpisodeRecord, ...] = ()
    """One per pair."""

    def __repr__(self) -> str:
        low, high = self.result["interval"]
        return (
            f"EvaluatedRun({str(self.path)!r}, success {percent(self.result['success_rate'])} of {len(self.records)} "
            f"pairs, 95 % interval {percent(low)} to {percent(high)}, mean capacity {self.result['mean_capacity']:.3g})"
        )


def evaluate_run(
    run: Path,
    settings: EvaluationSettings,
    *,
    data_path: Path | None = None,
    device: torch.device,
    num_animations: int = 4,
    out: Path | None = None,
    is_silent: bool = False,
    on_search: Callable[[int], None] | None = None,
    command: str | None = None,
    floors: Floors | None = None,
) -> EvaluatedRun:
    """Success of the newest checkpoint of `run`, written to result.json, episodes.jsonl, actions and animations/.

    The data file is the one the run was trained on, at `data_path` if it has moved. Of a run that learned from several
    data sets, `settings.data_set` or the file at `data_path` says which one is meant. Results of other settings are
    never replaced: they get a folder of their own (`settings.results_folder`). Those of these very settings are made
    anew, except in the folder of a shared model: what was published stays, and the new results are compared with it.
    A silent evaluation calls `on_search` after each search for a group of episodes, with their number. `command` is
    what the results name as their command, if not the one that was typed. Evaluations on the same data may share
    `floors`.
    """
    made_with = provenance(command)  # taken at the start: the working tree may change meanwhile
    checkpoint = latest_checkpoint(run)
    model, description = load_world_model(checkpoint, device)
    settings = replace(settings, data_set=_chosen_set(run, description, settings.data_set, data_path))
    settings = settings.at_frame_skip(description.config.frame_skip)
    learned = data_set_of(description, settings.data_set)
    task = task_of(learned)
    is_finished = "training" in read_if_there(run / "result.json")
    is_shared = SHARED_AS in description.extras
    folder = out or results_folder(run, settings, description.step, is_finished=is_finished, is_shared=is_shared)
    evaluated = {
        **settings.identity(),
        "checkpoint": checkpoint.name,
        "fingerprint": learned.fingerprint,
    }
    imagining: WorldModel | DistilledModel = model
    if settings.dynamics != OWN_DYNAMICS:
        imagining = with_dynamics(model, run, settings.dynamics)
        evaluated["dynamics_sha256"] = {capacity: fit["sha256"] for capacity, fit in imagining.fits.items()}
    known = check_same_settings(folder / "result.json", evaluated)
    # A folder of its own is a run folder too, so that a report can be made of it; another's is refused.
    described = {**read_object(run / "config.json"), "evaluated": evaluated}
    is_own = folder.resolve() == run.resolve()
    if not is_own:
        RunFolder(folder, late_field_defaults(RunConfig)).check(described)
    if not is_silent:
        _warn(run, description, is_finished=is_finished)
    planning = replace(settings.planning, episodes_per_batch=EPISODES_PER_BATCH[device.type])
    search = choose_search(imagining, device, reference=settings.reference_search, search=settings.planning.search)
    planner = Planner(
        imagining, learned.statistics.mean, learned.statistics.std, planning, inner_loop=search.inner_loop
    )
    pairs = find_pairs(run, learned, settings, data_path)
    image_size = description.config.model.encoder.image_size
    where, drawing = simulation_device(device), drawing_of(task, learned, settings)
    num_plans = len(pairs) * settings.most_plans_per_episode()
    progress = Progress(f"planning with {run.name}", num_plans, "plans", is_silent=is_silent)
    with idle_threads(device), progress as bar:
        shown = _Shown(bar, planner)
        found = evaluate_planner(
            lambda count: task.make_vector_env(count, where, image_size, drawing),
            *(pairs, planner, model.log_prior.exp()),
            budget=settings.budget,
            on_search=on_search if is_silent else shown.searched,
            floors=floors,
        )
        bar.finish()
    result = {**known, **found.result, "step": description.step, "search": search.description}
    result |= {"evaluated": evaluated, "made_with": made_with}
    if isinstance(imagining, DistilledModel):
        result["distilled_capacities"] = list(imagining.capacities)
        result["distilled_fits"] = imagining.fits
        result["episodes_with_own_predictor"] = sum(r.capacity not in imagining.capacities for r in found.records)
    if "imported_from" in description.extras:
        result["imported_from"] = description.extras["imported_from"]
    if is_shared:
        result["weights"] = description.extras[SHARED_AS]
    compared = agreement_with_published(run, settings, found.records) if is_shared and not is_own else None
    if compared is not None:
        result["as_published"] = asdict(compared)
    if not is_own:
        RunFolder(folder).open(described, command=command)
    _film(folder / "animations", partial(task.make_vector_env, drawing=drawing), pairs, found, num_animations)
    return EvaluatedRun(_write(folder, found, result), result, compared, found.records)


def _warn(run: Path, description: Description, *, is_finished: bool) -> None:
    if not is_finished:
        print(f"{run} has not finished training: update {description.step} is evaluated.", file=sys.stderr)
    if "imported_from" in description.extras:
        print(f"{run} was imported: its weights may have been trained on the episodes held out here.", file=sys.stderr)


def _write(folder: Path, found: Evaluation, result: dict[str, Any]) -> Path:
    """The result.json below `folder`, written last: where it is, everything that it sums up is too."""
    write_records(folder / "episodes.jsonl", found.records)
    save_tensors(folder / ACTIONS, {"actions": found.outcome.actions.contiguous()})
    write_json(folder / "result.json", result)
    return folder / "result.json"


class _Shown:
    """The bar of an evaluation, which moves with every search and says which of its iterations is at work."""

    def __init__(self, bar: Progress, planner: Planner) -> None:
        self.bar, self.num_iterations, self.iteration = bar, planner.config.cem.num_iterations, 0
        planner.on_iteration = self.scoring

    def scoring(self) -> None:
        """Candidates are about to be scored."""
        self.iteration = min(self.iteration + 1, self.num_iterations)
        self.bar.advance(0, f"(search {self.iteration}/{self.num_iterations})")

    def searched(self, num_plans: int) -> None:
        """A search has ended; a planner that tries several capacities searches more often than the bar is long."""
        self.iteration = 0
        self.bar.advance(min(num_plans, self.bar.total - self.bar.done))


def _chosen_set(run: Path, description: Description, asked: str, data_path: Path | None) -> str:
    """The data set that is meant; empty where the run has only one, which needs no name."""
    known = data_sets_of(description)
    if not asked and data_path is not None and len(known) > 1:
        with EpisodeStore.open(data_path) as store:
            asked = next((name for name, each in known.items() if each.fingerprint == store.fingerprint), "")
            if not asked:
                found = ", ".join(f"{name} {each.data['fingerprint']}" for name, each in known.items())
                raise InputError(
                    f"{run} was trained on data with the fingerprints {found}, but {data_path} has "
                    f"{store.fingerprint}. Give one of the run's own data files, or --task alone."
                )
    data_set_of(description, asked)
    return asked if len(known) > 1 else ""


def _film(
    folder: Path, make_env: Callable[[int], VectorGoalEnv], pairs: GoalPairs, found: Evaluation, count: int
) -> None:
    """Some episodes at the task's full image size, in place of those of an earlier evaluation."""
    for old in folder.glob("episode-*.gif"):
        old.unlink()
    chosen = choose_episodes(found.records, count)
    if not chosen:
        return
    taken, outcome = pairs.take(chosen), found.outcome
    films = film(make_env(len(chosen)), taken, outcome.actions[chosen], outcome.steps[chosen])
    for index, (frames, goal) in zip(chosen, films, strict=True):
        record = found.records[index]
        ended = "reached" if record.success else "missed"
        start = f"-from-{record.start_step}" if pairs.streams else ""  # an episode may have several
        write_gif(folder / f"episode-{record.episode:05d}{start}-{ended}-k{record.capacity}.gif", frames, goal)
