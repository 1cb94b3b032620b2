"""The page that travels with weights: what they are, what they reached, how to use them."""

from collections.abc import Iterable, Mapping
from typing import Any

from alewm.envs.registration import get_task, task_names
from alewm.evaluation.run import SHARED_AS
from alewm.evaluation.table import percent
from alewm.model.world_model import WorldModel
from alewm.training.checkpoint import Description
from alewm.training.data_sets import DATA_SETS

_LOADING = """\
```python
from alewm.ecosystem.hub import PretrainedRun

run = PretrainedRun.from_pretrained("{name}")  # a folder, or a repository of the Hub
planner = run.planner()
actions = planner(image_now, image_of_the_goal)  # uint8 [Y, X, 3] each
```
"""


def model_card(
    name: str,
    description: Description,
    model: WorldModel,
    result: Mapping[str, Any],
    provenance: Mapping[str, Any],
    results_apart: Mapping[str, Mapping[str, Any]],
    *,
    brings_pairs: bool,
    distilled_result: Mapping[str, Any],
) -> str:
    """Markdown with the Hub's front matter; every number in it comes from the run's own files.

    `results_apart` are the results of each data set, of a run that learned from several; then `result` has none.
    """
    config, extras = description.config, description.extras
    files = {each: values["data"] for each, values in extras.get(DATA_SETS, {}).items()} or {"": extras.get("data", {})}
    capacities = ", ".join(map(str, config.model.capacities))
    facts = [
        ("task", config.task),
        ("method", config.objective.method),
        ("latent width", config.model.latent_dim),
        ("capacities", capacities),
        ("images", f"{config.model.encoder.image_size} x {config.model.encoder.image_size}"),
        ("parameters", f"{sum(parameter.numel() for parameter in model.parameters()):,}"),
        ("weights stored as", extras.get(SHARED_AS, "float32")),
        ("updates", f"{description.step:,}"),
        ("imported from", _origin(extras)),
        *((_of("data fingerprint", each), data.get("fingerprint")) for each, data in files.items()),
        *((_of("data made with", each), _code(data.get("made_with"))) for each, data in files.items()),
        ("about the data", _data_note(config.task, files[""]) if "" in files else None),
        ("trained with", _code(provenance.get("command"))),
        ("commit", provenance.get("commit")),
    ]
    parts = [
        "---\nlibrary_name: alewm\nlicense: apache-2.0\ntags:\n- world-model\n- planning\n- alewm\n---\n",
        f"# {name}\n",
        "A latent world model that plans from pixels, made with `alewm`.\n",
        _table(("", ""), [(label, value) for label, value in facts if value is not None]),
        "## Success\n",
        *(f"### {each}\n\n{_success(found, extras)}" for each, found in results_apart.items()),
        *([] if results_apart else [_success(result, extras)]),
        *([_distilled(distilled_result)] if distilled_result else []),
        "## Use\n",
        _LOADING.format(name=name),
        *(_evaluation(name, data, brings_pairs) for data in files.values()),
    ]
    return "\n".join(parts)


def _data_note(task: str, data: Mapping[str, Any]) -> str | None:
    """What must be said beside any number about data that were recorded here."""
    return (get_task(task).note_on(data.get("made_with")) if task in task_names() else "") or None


def _success(result: Mapping[str, Any], extras: Mapping[str, Any]) -> str:
    if "success_rate" not in result:
        return "Not evaluated yet.\n"
    low, high = result["interval"]
    cem = result["planning"]["cem"]
    rows = [
        ("success", f"{percent(result['success_rate'])} (95 % interval {percent(low)} to {percent(high)})"),
        ("where not solved at the start", percent(result["success_rate_nontrivial"])),
        ("uniform random actions, same pairs", percent(result["random_success_rate"])),
        ("doing nothing, same pairs", percent(result["zero_success_rate"])),
        ("solved at the start", percent(result["presolved_share"])),
        ("pairs", f"{result['episodes']} ({result['evaluated']['split']} episodes)"),
        ("search", f"{cem['num_candidates']} candidates, {cem['num_iterations']} iterations"),
        ("mean capacity", f"{result['mean_capacity']:.3g} of {result['support'][-1]}"),
        ("command", _code(result.get("made_with", {}).get("command"))),
    ]
    lines = [_table(("", ""), [(label, value) for label, value in rows if value is not None])]
    if extras.get(SHARED_AS) == "bfloat16" and result.get("weights") != "bfloat16":
        lines.append("Measured with the float32 weights, before the matrices were rounded to bfloat16.\n")
    if "imported_from" in extras:
        lines.append("The weights were imported: they may have been trained on the episodes they were tested on.\n")
    if len(result["support"]) > 1:
        counts = result["capacity_counts"]
        lines.append("Capacities planned with, and the selector's mean q beside its prior:\n")
        by_capacity = [
            (str(k), counts[str(k)], f"{q:.3f}", f"{prior:.3f}")
            for k, q, prior in zip(result["support"], result["q_mean"], result["q_prior"], strict=True)
        ]
        lines.append(_table(("capacity", "episodes", "mean q", "prior"), by_capacity))
    return "\n".join(lines)


def _distilled(result: Mapping[str, Any]) -> str:
    """Success with the small dynamics that came along, which plan in a fraction of the time."""
    low, high = result["interval"]
    capacities = ", ".join(map(str, result["distilled_capacities"]))
    pairs = f"{result['episodes']} {result['evaluated']['split']} pairs"
    return (
        f"With the distilled dynamics in `distilled/` (capacities {capacities}): {percent(result['success_rate'])} of "
        f"{pairs} (95 % interval {percent(low)} to {percent(high)}), by `alewm evaluate FOLDER --dynamics distilled`.\n"
    )


def _evaluation(name: str, data: Mapping[str, Any], brings_pairs: bool) -> str:
    made = f"`{data['made_with']}`" if "made_with" in data else f"the file with fingerprint {data.get('fingerprint')}"
    data_option = "" if brings_pairs else f" --data {data.get('path') or 'FILE'}"
    pairs = (
        "The held-out pairs are in it (`pairs.safetensors`); the data is not"
        if brings_pairs
        else "The data file is not included"
    )
    return (
        f"This folder is a run folder: `alewm evaluate {name}{data_option}` repeats the evaluation and `alewm report "
        f"{name}` draws it. {pairs}; it is {'made by ' if 'made_with' in data else ''}{made}.\n"
    )


def _of(label: str, data_set: str) -> str:
    return f"{label}, {data_set}" if data_set else label


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def _code(command: Any) -> str | None:
    return f"`{command}`" if command else None


def _origin(extras: Mapping[str, Any]) -> str | None:
    origin = extras.get("imported_from")
    return f"{origin['format']}, {origin['file']}, sha256 {origin['sha256']}" if origin else None
