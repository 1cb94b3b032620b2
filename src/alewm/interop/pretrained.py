"""Share a trained model: a run folder reduced to what others need, with a model card and its measured success.

    config.json  provenance.json  result.json  splits*.json   as in the run, without this machine's paths
    metrics.jsonl  episodes.jsonl                             where the run has them
    pairs*.safetensors                                        starts and goals held out, where the data is there
    checkpoints/step-<n>/model.safetensors                    the newest weights
    checkpoints/step-<n>/checkpoint.json                      architecture, action statistics, data fingerprint
    distilled/k<capacity>/                                    small dynamics, where the run was distilled
    README.md                                                 the model card

`alewm evaluate` and `alewm report` take such a folder like any other run. With its pairs inside, evaluation needs
nothing else; without, it needs the data file the run was trained on, or one made again by the command in the card: its
fingerprint is compared.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from alewm.envs.registry import get_task, task_names
from alewm.errors import InputError
from alewm.evaluation.animations import ACTIONS
from alewm.evaluation.decoder import DECODER, FITTED_DECODER
from alewm.evaluation.evaluate_run import SHARED_AS, evaluate_run, interval_in_words, percent
from alewm.evaluation.held_out import NoEnvironmentError, pairs_in_data, pairs_name, save_pairs
from alewm.evaluation.imagination import IMAGINATION
from alewm.evaluation.settings import EVALUATIONS, EvaluationSettings, Split
from alewm.files import check_new_folder, inside, read_if_there, read_json, write_json, write_text
from alewm.interop.hub import check_licence_id, licence_in_card
from alewm.model.checkpoint_files import checkpoints_in, weights_sha256
from alewm.model.world_model import WorldModel
from alewm.planning.distilled import DISTILLED, DYNAMICS, distilled_capacities
from alewm.runs.fitted import FittedKind
from alewm.runs.folder import new_folder, portable, require_run
from alewm.shapes import Tensor
from alewm.training.checkpoint import (
    DATA_SETS,
    Description,
    data_sets_of,
    latest_checkpoint,
    load_world_model,
    read_description,
    save_weights,
)

_LOADING = """\
```python
import alewm

model = alewm.load("{name}")  # a folder, or a repository of the Hub
plan = model.plan(image_now, image_of_the_goal)  # uint8 [Y, X, 3] each; plan.actions, plan.capacity
policy = model.policy(image_of_the_goal)  # replans: policy.act(image_now).action
```
"""


def _method(name: str) -> str:
    """The paper by title and authors: no public address of it is known."""
    method = "LeWM, the baseline of" if name == "lewm" else "that of"
    return (
        f"Its method is {method} *Adaptive Latent Capacity for World Models* (Idan Achituve, Lior Dikstein, Idit "
        f"Diamant, Arnon Netzer and Hai Victor Habi, 2026)."
    )


UNKNOWN_LICENCE = "unknown"
"""The Hub's own word for a licence that is not stated."""


def _licence(run: Path, extras: Mapping[str, Any], given: str | None) -> str | None:
    """The licence of the weights: that of their source, as `given`, or as the run's own card states it; never assumed.

    Only a run that was shared, or fetched from the Hub, has a card.
    """
    if given is not None:
        check_licence_id(given)
    of_source = extras.get("imported_from", {}).get("license")
    if given is not None and of_source not in (None, given):
        raise InputError(f"The weights were imported under the licence {of_source!r}; --license says {given!r}.")
    in_card = licence_in_card(run)
    return of_source or given or (None if in_card == UNKNOWN_LICENCE else in_card)


def _front_matter(name: str, task: str, result: Mapping[str, Any], licence: str | None) -> str:
    """What the Hub reads of a card; JSON is YAML, and quotes whatever a name may hold."""
    fields: dict[str, Any] = {
        "library_name": "alewm",
        "license": licence or UNKNOWN_LICENCE,
        "pipeline_tag": "robotics",
        "tags": ["world-model", "planning", "alewm"],
    }
    if "success_rate" in result:
        value = round(100 * result["success_rate"], 2)
        metric = {"type": "success_rate", "name": "goals reached (%)", "value": value}
        measured = {
            "task": {"type": "robotics", "name": "planning to goal images"},
            "dataset": {"type": task, "name": f"{task}, {result['episodes']} held-out pairs"},
            "metrics": [metric],
        }
        fields["model-index"] = [{"name": name, "results": [measured]}]
    lines = [f"{key}: {value if isinstance(value, str) else json.dumps(value)}" for key, value in fields.items()]
    return "\n".join(["---", *lines, "---", ""])


def _data_note(task: str, data: Mapping[str, Any]) -> str | None:
    """What must be said beside any number about data that were recorded here."""
    return (get_task(task).note_on(data.get("made_with")) if task in task_names() else "") or None


def _success(result: Mapping[str, Any], extras: Mapping[str, Any]) -> str:
    if "success_rate" not in result:
        return "Not evaluated yet.\n"
    cem = result["planning"]["cem"]
    rows = [
        ("success", f"{percent(result['success_rate'])} (95 % interval {interval_in_words(result)})"),
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
    if origin is None:
        return None
    where = "a file of unknown origin"
    if (name := origin.get("repository")) is not None:
        where = f"[{name}](https://huggingface.co/{name}) at revision {origin['revision']}"
    return f"{where}: {origin['file']} ({origin['format']}), sha256 {origin['sha256']}"


WeightType = Literal["float32", "bfloat16"]
"""How matrices are stored; vectors (norms, biases, running moments) always stay float32."""

_COPIED = ("splits*.json", "pairs*.safetensors", "metrics.jsonl", "episodes.jsonl")


@dataclass(frozen=True)
class SharedRun:
    """The parts of a run that are shared."""

    model: WorldModel
    """The newest weights, in evaluation mode."""
    description: Description
    """What is known about them, without this machine's paths."""
    result: dict[str, Any]
    """The content of result.json."""
    results_apart: dict[str, dict[str, Any]]
    """What was reached on each data set, of a run that learned from several; then `result` has no success."""
    provenance: dict[str, Any]
    """The content of provenance.json, without this machine's paths."""
    distilled_result: dict[str, Any]
    """The result.json of the same evaluation with distilled dynamics; empty where there is none."""
    licence: str | None
    """The licence of the weights; None where nobody has stated one."""

    @classmethod
    def of(cls, run: Path, weights: WeightType = "float32", licence: str | None = None) -> "SharedRun":
        """What the run folder `run` has to share, with matrices stored as `weights`, under `licence` if it is given."""
        if weights not in ("float32", "bfloat16"):
            raise InputError(f"Weights are stored as float32 or bfloat16, got {weights!r}.")
        model, description = load_world_model(latest_checkpoint(run))
        extras = portable({**description.extras, SHARED_AS: weights})
        provenance, result = (portable(read_if_there(run / name)) for name in ("provenance.json", "result.json"))
        apart = {
            name: portable(read_if_there(run / EVALUATIONS / name / "result.json"))
            for name in extras.get(DATA_SETS, {})
        }
        small = EVALUATIONS, EvaluationSettings(dynamics=DISTILLED).name(), "result.json"
        distilled = portable(read_if_there(run.joinpath(*small)))
        described = replace(description, source_state={}, extras=extras)
        return cls(model, described, result, apart, provenance, distilled, _licence(run, extras, licence))

    def card(self, name: str, folder: Path) -> str:
        """The model card of the model in `folder`: Markdown with the Hub's front matter, made of the run's own files.

        The folder may have brought its held-out pairs along.
        """
        config, extras = self.description.config, self.description.extras
        files = {each: values["data"] for each, values in extras.get(DATA_SETS, {}).items()}
        files = files or {"": extras.get("data", {})}
        brings_pairs = all((folder / pairs_name(each)).is_file() for each in data_sets_of(self.description).values())
        films = [path.relative_to(folder).as_posix() for path in sorted(folder.glob("animations/*.gif"))]
        facts = [
            ("task", config.task),
            ("method", config.objective.method),
            ("latent width", config.model.latent_dim),
            ("capacities", ", ".join(map(str, config.model.capacities))),
            ("images", f"{config.model.encoder.image_size} x {config.model.encoder.image_size}"),
            ("parameters", f"{sum(parameter.numel() for parameter in self.model.parameters()):,}"),
            ("weights stored as", extras.get(SHARED_AS, "float32")),
            ("updates", f"{self.description.step:,}"),
            ("imported from", _origin(extras)),
            ("licence", self.licence or (UNKNOWN_LICENCE if "imported_from" in extras else "not stated")),
            *((_of("data fingerprint", each), data.get("fingerprint")) for each, data in files.items()),
            *((_of("data made with", each), _code(data.get("made_with"))) for each, data in files.items()),
            ("about the data", _data_note(config.task, files[""]) if "" in files else None),
            ("trained with", _code(self.provenance.get("command"))),
            ("commit", self.provenance.get("commit")),
        ]
        parts = [
            _front_matter(name, config.task, self.result, self.licence),
            f"# {name}\n",
            f"A latent world model that plans from pixels, made with `alewm`. {_method(config.objective.method)}\n",
            *(f"![An episode planned with it]({film})\n" for film in films[:1]),
            _table(("", ""), [(label, value) for label, value in facts if value is not None]),
            "## Success\n",
            *(f"### {each}\n\n{_success(found, extras)}" for each, found in self.results_apart.items()),
            *([] if self.results_apart else [_success(self.result, extras)]),
            *([_distilled(self.distilled_result)] if self.distilled_result else []),
            "## Use\n",
            "In a clone of alewm: `pip install '.[hub]'`.\n",
            _LOADING.format(name=name),
            *(_evaluation(name, data, brings_pairs) for data in files.values()),
        ]
        return "\n".join(parts)


def save_pretrained(
    run: Path, out: Path, weights: WeightType = "float32", *, name: str | None = None, licence: str | None = None
) -> Path:
    """The new folder `out` with the newest checkpoint of `run`, ready to be shared.

    `name` is what its card calls the model, such as the OWNER/NAME under which it will be on the Hub; if not given,
    that of the folder. `licence` is the one of the weights, for example mit; if not given, the card says that none is
    stated.
    """
    check_new_folder(out)
    shared = SharedRun.of(run, weights, licence)
    with new_folder(out) as partial:
        for path in [run / ACTIONS, *sorted(run.glob("animations/*.gif"))]:  # of the evaluation that travels along
            if path.is_file():
                (partial / path.relative_to(run)).parent.mkdir(exist_ok=True)
                shutil.copyfile(path, partial / path.relative_to(run))
        fill_pretrained(run, shared, partial, weights, name=name or out.resolve().name)
    return out


def fill_pretrained(run: Path, shared: SharedRun, out: Path, weights: WeightType, *, name: str) -> None:
    """All that `run` shares, written to the empty folder `out`; `name` is the title of its card."""
    save_weights(out / "checkpoints", shared.description, stored_weights(shared.model, weights))
    for path in (path for pattern in _COPIED for path in sorted(run.glob(pattern))):
        shutil.copyfile(inside(path, run), out / path.name)
    _save_missing_pairs(run, out)
    _save_fitted(run, out)
    _save_imagination(run, out)
    write_json(out / "result.json", shared.result)
    write_json(out / "provenance.json", shared.provenance)
    write_text(out / "README.md", shared.card(name, out))
    write_json(out / "config.json", read_json(run / "config.json"))  # last: from now on it is a run folder


def _save_missing_pairs(run: Path, out: Path) -> None:
    """The pairs, where the data file is still where it was and an environment can be put into its states."""
    for learned in data_sets_of(read_description(latest_checkpoint(run))).values():
        path, fingerprint = learned.data.get("path"), learned.data.get("fingerprint")
        place = out / pairs_name(learned)
        if path is not None and fingerprint is not None and Path(path).is_file() and not place.is_file():
            held_out: tuple[Split, ...] = ("validation", "test")
            with suppress(NoEnvironmentError):
                pairs = {str(split): pairs_in_data(run, Path(path), learned, split) for split in held_out}
                save_pairs(place, pairs, fingerprint)


def _save_fitted(run: Path, out: Path) -> None:
    """Distilled dynamics and decoder of the run's newest weights, bound to the weights as they are stored in `out`.

    Rounding to bfloat16 moves the latents a little, so the hash changes; `share_run` measures what that costs. What
    `out` has already is kept.
    """
    before = weights_sha256(latest_checkpoint(run))
    after = weights_sha256(checkpoints_in(out / "checkpoints")[-1])
    kinds: dict[Path, FittedKind[Any]] = {run / DECODER: FITTED_DECODER}
    for folder, kind in (kinds | dict.fromkeys(distilled_capacities(run / DISTILLED).values(), DYNAMICS)).items():
        place = out / folder.relative_to(run)
        if kind.is_in(folder) and not kind.is_in(place):
            description = portable({**kind.describe(folder), "weights_sha256": after})
            kind.copy(folder, place, before, description)


def _save_imagination(run: Path, out: Path) -> None:
    """What the run was found to imagine, bound to the weights as they are stored in `out`."""
    if not (found := read_if_there(run / IMAGINATION / "imagination.json")):
        return
    if found["made_from"]["weights_sha256"] != weights_sha256(latest_checkpoint(run)):
        return  # of earlier weights
    found["made_from"]["weights_sha256"] = weights_sha256(checkpoints_in(out / "checkpoints")[-1])
    with new_folder(out / IMAGINATION) as partial:
        shutil.copyfile(run / IMAGINATION / "frames.png", partial / "frames.png")
        write_json(partial / "imagination.json", portable(found))


def stored_weights(model: WorldModel, weights: WeightType) -> dict[str, Tensor]:
    """The tensors of `model` as they are stored: matrices as `weights`."""
    state: dict[str, Tensor] = model.state_dict()
    if weights == "float32":
        return state
    return {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() and tensor.ndim > 1 else tensor
        for name, tensor in state.items()
    }


def share_run(
    run: Path,
    out: Path,
    *,
    weights: WeightType,
    device: torch.device,
    num_animations: int = 0,
    name: str | None = None,
    licence: str | None = None,
) -> Path:
    """The new folder `out` with the newest weights of the finished run, evaluated as they are stored there.

    Where its task has no environment here, success cannot be measured, and the folder is that of `save_pretrained`.
    Its card calls the model `name`; if not given, as the folder. It states `licence`; if not given, none. The folder
    appears when it is complete; an interrupted call leaves nothing under that name. Where a folder holds these very
    weights, evaluated, what was fitted to them since is added and the card is written anew.
    """
    title = name or out.resolve().name
    if _is_shared(run, out, weights):
        _save_fitted(run, out)
        write_text(out / "README.md", SharedRun.of(out, weights, licence).card(title, out))
        return out
    require_run(run)
    check_new_folder(out)
    if "training" not in read_if_there(run / "result.json"):
        raise InputError(f"{run} is no finished run: repeat its `alewm train` command to train it to its end.")
    description = read_description(latest_checkpoint(run))
    if len(description.config.data_sets) > 1:
        raise InputError(f"{run} learned from several data sets; save it with save_pretrained (docs/ecosystem.md).")
    if description.config.task not in task_names():
        return save_pretrained(run, out, weights, name=title, licence=licence)
    shared = SharedRun.of(run, weights, licence)
    with new_folder(out) as partial:
        fill_pretrained(run, shared, partial, weights, name=title)
        write_json(partial / "result.json", {"training": read_json(partial / "result.json")["training"]})
        evaluate_run(partial, EvaluationSettings(), device=device, num_animations=num_animations, out=partial)
        if distilled_capacities(partial / DISTILLED):
            evaluate_run(partial, EvaluationSettings(dynamics=DISTILLED), device=device, num_animations=0)
        write_text(partial / "README.md", SharedRun.of(partial, weights, licence).card(title, partial))
    return out


def _is_shared(run: Path, out: Path, weights: WeightType) -> bool:
    """Whether `out` is what an earlier call made of `run`."""
    if not (out / "config.json").is_file() or not checkpoints_in(out / "checkpoints"):
        return False
    can_be_evaluated = read_description(latest_checkpoint(out)).config.task in task_names()
    if can_be_evaluated and "evaluated" not in read_if_there(out / "result.json"):
        return False
    asked, found = SharedRun.of(run, weights), SharedRun.of(out, weights)
    stored, there = stored_weights(asked.model, weights), stored_weights(found.model, weights)
    return (
        asked.description == found.description == read_description(latest_checkpoint(out))
        and stored.keys() == there.keys()
        and all(torch.equal(stored[name], there[name]) for name in stored)
    )
