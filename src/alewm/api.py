"""The Python interface: `alewm.load` and the verbs as functions.

A loaded model takes images and actions in the units of its environment:

```python
model = alewm.load("pretrained/two-room-tiny")
latents = model.encode(frames)                   # [B, D]
future = model.imagine(frame, actions)           # [H, D], one latent per block of actions
plan = model.plan(frame, goal)                   # plan.actions, plan.cost, plan.capacity, plan.q
policy = model.policy(goal)                      # policy.act(frame).action, again and again
```

Frames are uint8 [Y, X, 3] or a batch [B, Y, X, 3], of the encoder's size or larger. Larger ones are averaged down by
area, as training does.

`collect`, `train` and `evaluate` are the commands of these names. Defaults, checks and messages are the commands' own:
each function fills in the command and runs it. Further options are those of `alewm VERB --help`, with underscores for
dashes.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from alewm.capacity.support import modal_index
from alewm.cli.data_files import Collect
from alewm.cli.look import Evaluate
from alewm.cli.train import Train
from alewm.data.store import EpisodeStore
from alewm.devices import find_device
from alewm.envs.registry import get_task, task_names
from alewm.errors import InputError, unknown_name
from alewm.evaluation.decoder import PixelDecoder, find_decoder
from alewm.evaluation.evaluate_run import EvaluatedRun
from alewm.evaluation.settings import OWN_DYNAMICS
from alewm.interop.hub import here_or_fetched, run_here_or_fetched
from alewm.model.checkpoint_files import DESCRIPTION, checkpoints_in, weights_sha256
from alewm.model.world_model import WorldModel
from alewm.planning.distilled import DISTILLED, DistilledModel, load_distilled
from alewm.planning.planner import Images, Planner, PlanningConfig, choose_search
from alewm.planning.policy import Policy
from alewm.shapes import Float, Tensor, UInt8
from alewm.training.checkpoint import Description, data_set_of, latest_checkpoint, load_world_model, read_description

CURVES = ("loss", "validation/loss", "validation/prediction")
"""Metrics that a notebook shows, of those a run has."""


class Plan(NamedTuple):
    """A plan from one image to another."""

    actions: Float[np.ndarray, "steps action"]
    """One action per environment step, in the environment's units."""
    cost: float
    """The goal cost that the plan is predicted to end with."""
    capacity: int
    """The capacity it was planned with."""
    q: dict[int, float]
    """The selector's probability of each capacity."""


def load(path: str | Path, *, device: str = "auto", dynamics: str = OWN_DYNAMICS, data_set: str = "") -> "LoadedModel":
    """The trained model in a run folder, in the folder of a shared model, in one of their checkpoints, or on the Hub.

    `path` is a folder, or `owner/name` on the Hugging Face Hub, which needs the extra `hub`. `dynamics` are those of
    `alewm evaluate`: `own`, `distilled` or a folder of `alewm distill`. `data_set` says whose actions are meant, of a
    model that learned from several.
    """
    return LoadedModel(_checkpoint_at(path), device=find_device(device), dynamics=dynamics, data_set=data_set)


class LoadedModel:
    """A trained model, its task and the statistics of its actions; made by `alewm.load`."""

    def __init__(
        self,
        checkpoint: Path,
        *,
        device: torch.device,
        dynamics: str = OWN_DYNAMICS,
        data_set: str = "",
    ) -> None:
        self.checkpoint, self.device = checkpoint, device
        self.model: WorldModel
        self.description: Description
        self.model, self.description = load_world_model(checkpoint, device)
        self.data_set = data_set_of(self.description, data_set)
        self._planning_model: WorldModel | DistilledModel = self.model
        if dynamics != OWN_DYNAMICS:
            folder = self.path / DISTILLED if dynamics == DISTILLED else Path(dynamics)
            self._planning_model = load_distilled(self.model, weights_sha256(checkpoint), folder)
        self._images = self.planner()
        self._decoder: PixelDecoder | None = None

    @property
    def path(self) -> Path:
        """The run folder; the checkpoint's own where it is in none."""
        run = self.checkpoint.parent.parent
        return run if (run / "config.json").is_file() else self.checkpoint

    @property
    def task(self) -> str:
        """The task whose actions it plans."""
        return self.data_set.task

    @property
    def frame_skip(self) -> int:
        """Environment steps per latent step, and so actions in a block."""
        return self.description.config.frame_skip

    @property
    def capacities(self) -> tuple[int, ...]:
        """The capacities it may plan with; the last is the width of the latent."""
        return self.model.support.capacities

    def encode(self, frames: Images) -> Float[np.ndarray, "*batch D"]:
        """The latent of each frame."""
        _, latents, alone = self._encoded(frames, "encoded")
        return _numpy(latents[0] if alone else latents)

    def decode(self, latents: np.ndarray) -> UInt8[np.ndarray, "*batch Y X 3"]:
        """The frames that the run's decoder draws for latents, or for prefixes whose length is a capacity.

        `alewm decode RUN` fits the decoder.
        """
        if self._decoder is None:
            self._decoder = find_decoder(self.path, self.device)
        if self._decoder is None:
            raise InputError(f"{self.path} has no decoder. Fit one: alewm decode {self.path}")
        drawn = self._decoder.frames(torch.as_tensor(np.asarray(latents, dtype=np.float32), device=self.device))
        return drawn.cpu().numpy()

    def imagine(self, frame: Images, actions: np.ndarray, *, capacity: int | None = None) -> Float[np.ndarray, "H k"]:
        """The latents that the model predicts after each block of `actions`, from the latent of `frame`.

        `actions` are [steps, action], in the environment's units; steps are a multiple of the frame skip. With a
        `capacity`, only so many coordinates are carried and returned.
        """
        frame_skip, statistics = self.frame_skip, self.data_set.statistics
        given = np.asarray(actions, dtype=np.float32)
        if given.ndim != 2 or given.shape[1] != len(statistics.mean) or len(given) % frame_skip or not len(given):
            raise InputError(
                f"Actions are [steps, {len(statistics.mean)}], in blocks of {frame_skip} steps; got "
                f"{list(given.shape)}."
            )
        if not np.isfinite(given).all():
            raise InputError("Actions must be finite numbers.")
        width = self.capacities[-1] if capacity is None else capacity
        self.model.support.index_of(width)
        z = self._encoded(self._images.one_frame(frame, "current"), "current")[1][:, :width]
        blocks = torch.as_tensor(statistics.normalize(given), dtype=torch.float32, device=self.device)
        blocks = blocks.reshape(1, -1, self._images.block_dim)
        with torch.no_grad():
            imagined = self._planning_model.imagine_prefix(z, blocks, width, self.model.context_length)
        return _numpy(torch.cat(imagined))

    def q(self, first: Images, goal: Images) -> dict[int, float]:
        """The selector's probability of each capacity, for an episode from `first` to `goal`."""
        return dict(zip(self.capacities, self._q(first, goal).tolist(), strict=True))

    def capacity(self, first: Images, goal: Images) -> int:
        """The most probable capacity for an episode from `first` to `goal`."""
        return self.capacities[int(modal_index(self._q(first, goal)[None]))]

    def plan(self, frame: Images, goal: Images, config: PlanningConfig | None = None) -> Plan:
        """The plan from `frame` to `goal`: all its actions, also those that a policy would not execute."""
        planner = self._images if config is None else self.planner(config)
        first, last = planner.one_frame(frame, "current"), planner.one_frame(goal, "goal")
        plans, q = planner.plan_between(first[None], last[None])
        return Plan(
            _numpy(planner.to_actions(plans.blocks)[0]),
            float(plans.costs[0]),
            plans.capacities[0],
            dict(zip(self.capacities, q[0].tolist(), strict=True)),
        )

    def policy(self, goal: Images | None = None, config: PlanningConfig | None = None) -> Policy:
        """A policy that acts towards `goal`, frame by frame, within the limits that the task declares."""
        return Policy(self.planner(config), goal, action_limits=self._action_limits())

    def planner(self, config: PlanningConfig | None = None) -> Planner:
        """The planner behind `plan` and `policy`, which also takes batches."""
        config = (config or PlanningConfig()).at_frame_skip(self.frame_skip)
        search = choose_search(self._planning_model, self.device, search=config.search)
        statistics = self.data_set.statistics
        return Planner(self._planning_model, statistics.mean, statistics.std, config, inner_loop=search.inner_loop)

    def _encoded(self, frames: Images, which: str) -> tuple[Tensor, Tensor, bool]:
        pixels = self._images.pixels(frames, which)
        alone = pixels.ndim == 3
        features, latents = self._images.encode((pixels[None] if alone else pixels)[:, None])
        return features[:, 0], latents[:, 0], alone

    def _q(self, first: Images, goal: Images) -> Float[Tensor, "C"]:
        ends = [self._images.one_frame(first, "current"), self._images.one_frame(goal, "goal")]
        features, _ = self._images.encode(torch.stack(ends)[None])
        return self._images.capacity_distribution(features)[0]

    def _action_limits(self) -> tuple[float, float] | None:
        if self.task not in task_names():
            return None
        try:
            return get_task(self.task).action_limits
        except InputError as error:  # its simulator is not installed, which planning does not need
            print(f"Actions are not limited: {error}", file=sys.stderr)
            return None

    def __repr__(self) -> str:
        return (
            f"LoadedModel({str(self.path)!r}, task={self.task!r}, method={self.description.config.objective.method!r}, "
            f"capacities={self.capacities}, image_size={self.model.image_size}, updates={self.description.step}, "
            f"device={str(self.device)!r})"
        )

    def _repr_html_(self) -> str:
        """Curves of the run and one filmed episode, which is what a notebook shows."""
        from alewm.report import figures, html  # loads matplotlib, which only notebooks should cost
        from alewm.report.gather import read_run
        from alewm.theme import as_svg

        title = f"<p><code>{escape(repr(self))}</code></p>"
        if self.path == self.checkpoint:
            return title
        run = read_run(self.path)
        scalars = run.scalars()
        curves = [
            html.figure(as_svg(figures.metric_curves({0: scalars[name]}, [run.name], name)), name, titled=True)
            for name in CURVES
            if name in scalars
        ]
        films = [html.film(path.read_bytes(), path.stem) for path in run.animations[:1]]
        return f'{title}<div style="display:flex;flex-wrap:wrap">{"".join([*curves, *films])}</div>'


def _numpy(tensor: Tensor) -> np.ndarray:
    values: np.ndarray = tensor.float().cpu().numpy()
    return values


def _checkpoint_at(path: str | Path) -> Path:
    """The checkpoint that `path` means."""
    folder = Path(path)
    if (folder / DESCRIPTION).is_file():
        return folder
    if saved := checkpoints_in(folder):
        return saved[-1]
    return latest_checkpoint(here_or_fetched(path))


Paths = str | Path | Iterable[str | Path]
_PATHS = ("data", "out", "demonstrations")


def collect(task: str, out: str | Path, **options: Any) -> EpisodeStore:
    """The file `out` with recorded episodes of `task`, open for reading; those that are there already are kept.

    ```python
    store = alewm.collect("two-room", "data/two-room.h5", episodes=400, image_size=64)
    ```

    Options are those of `alewm collect --help`: episodes, seed, image_size, behaviour, max_steps, jobs, ...
    """
    out = Path(out)
    _command(Collect, "collect", task=task, out=out, **options).collected()
    return EpisodeStore.open(out)


def train(preset: str, data: Paths, out: str | Path | None = None, **options: Any) -> LoadedModel:
    """The model that was trained from the episodes in `data`, in the run folder `out` (by default runs/PRESET-SEED).

    ```python
    model = alewm.train("two-room-tiny", "data/two-room.h5", steps=200)
    ```

    A run that was interrupted goes on; one that is finished is loaded. Options are those of `alewm train --help`: seed,
    steps, batch_size, learning_rate, device, ...; `set` is a mapping, for example `{"model.prior_degree": 2}`. Of
    several files, the model plans actions of the first; `alewm.load(folder, data_set=...)` names another.
    """
    if isinstance(settings := options.get("set"), dict):
        options["set"] = tuple(f"{name}={json.dumps(value)}" for name, value in settings.items())
    if isinstance(log := options.get("log"), str):
        options["log"] = (log,)
    command = _command(
        Train, "train", preset=preset, data=_paths(data), out=None if out is None else Path(out), **options
    )
    folder = command.trained()
    data_sets = read_description(latest_checkpoint(folder)).config.data_sets
    return load(folder, device=command.device, data_set=next(iter(data_sets)))


def evaluate(run: str | Path | LoadedModel, **options: Any) -> EvaluatedRun:
    """The closed-loop success of a run on held-out pairs, written into its folder as `alewm evaluate` does.

    ```python
    found = alewm.evaluate("pretrained/two-room-tiny", episodes=20)
    found.result["success_rate"], found.records[0].capacity
    ```

    Options are those of `alewm evaluate --help`: data, split, episodes, capacity, candidates, iterations, executed, ...
    """
    folder = run.path if isinstance(run, LoadedModel) else run_here_or_fetched(run)
    command = _command(Evaluate, "evaluate", runs=(folder,), **options)
    if len(several := command.data_sets(folder)) > 1:
        raise InputError(f"{folder} learned from several data sets; name one, for example task={several[0]!r}.")
    found: EvaluatedRun = next(iter(command.evaluated().values()))
    return found


def _command(kind: Any, verb: str, **options: Any) -> Any:
    """The command with these options; one that it does not have is refused with the nearest that it has."""
    known = [field.name for field in fields(kind) if field.name != "list"]  # which only prints
    for name in options:
        if name not in known:
            raise unknown_name(f"option of alewm.{verb}", name, known)
    paths = {name: Path(value) for name, value in options.items() if name in _PATHS and isinstance(value, str)}
    return kind(**{**options, **paths})


def _paths(data: Paths) -> tuple[Path, ...]:
    return (Path(data),) if isinstance(data, (str, Path)) else tuple(map(Path, data))
