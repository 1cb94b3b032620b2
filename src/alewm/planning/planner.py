"""The planner: two images in, actions out.

```python
planner = Planner(model, statistics.mean, statistics.std)
for action in planner(image_now, image_of_the_goal):
    env.step(action)
```

`alewm.planning.policy` replans until the goal is reached. Episodes that share a capacity are searched together by an
inner loop: `plan_group`, a function of tensors whose shapes are fixed by the configuration and the group's size, or on
a GPU a recorded version of it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import nn

from alewm.config import ADDED_LATER, AT_LEAST_1, Count, CountOrZero, check_ranges
from alewm.devices import why_no_triton
from alewm.errors import InputError, unknown_name
from alewm.model.predictor import LONGEST_FAST_CONTEXT
from alewm.model.world_model import WorldModel
from alewm.planning.capacity_rule import parse_capacity_rule
from alewm.planning.distilled import DistilledModel
from alewm.planning.noise import StreamKey, candidate_noise
from alewm.planning.rollout import CONTEXT, GoalCost, PlanningModel, compared_width, prefix_distance, sliced_roll_out
from alewm.planning.search import SEARCHES, CEMConfig, CEMResult, SearchName
from alewm.resize import area_downsample
from alewm.shapes import FRAME_SKIP, Float, Tensor, UInt8


@dataclass(frozen=True)
class SearchSettings:
    """What all episodes of a group are searched with."""

    capacity: int
    """Coordinates of the latent that rollouts carry (k)."""
    cem: CEMConfig
    """Sizes of the search."""
    goal_cost: GoalCost = "active"
    """Compare the goal on these coordinates, or on all."""
    context: int = CONTEXT
    """Positions the predictor reads."""
    search: SearchName = "cem"
    """How candidates are improved (`alewm.planning.search`)."""
    on_iteration: Callable[[], None] | None = field(default=None, compare=False)
    """Called whenever candidates are to be scored, for a progress bar; a search recorded on a GPU never calls it."""


InnerLoop = Callable[[PlanningModel, Tensor, Tensor, Tensor, Tensor, SearchSettings], CEMResult]
"""Anything that searches like `plan_group`."""


def plan_group(
    model: PlanningModel,
    z_now: Float[Tensor, "B D"],
    z_goal: Float[Tensor, "B D"],
    noise: Float[Tensor, "iterations B S H A"],
    initial_mean: Float[Tensor, "B H A"],
    settings: SearchSettings,
) -> CEMResult:
    """The blocks whose imagined end is nearest to the goal in the coordinates that `settings` compare."""
    capacity, context = settings.capacity, settings.context
    width = compared_width(settings.goal_cost, capacity, z_goal.shape[-1])

    def score(candidates: Float[Tensor, "B S H A"]) -> Float[Tensor, "B S"]:
        if settings.on_iteration is not None:
            settings.on_iteration()
        imagined = sliced_roll_out(model, z_now, candidates, capacity, last_width=width, context=context)
        return prefix_distance(imagined[-1], z_goal)

    return SEARCHES[settings.search](score, noise, settings.cem, initial_mean)


class SearchChoice(NamedTuple):
    """A search, and a line that says which it is and why it was taken."""

    inner_loop: InnerLoop
    description: str


def choose_search(
    model: PlanningModel, device: torch.device, *, reference: bool = False, search: SearchName = "cem"
) -> SearchChoice:
    """The recorded search where a GPU, Triton and a model of ours meet; the plain one otherwise, or if asked for."""
    obstacle = "asked for" if reference else _why_not_recorded(model, device, search)
    if obstacle is not None or not isinstance(model, (WorldModel, DistilledModel)):
        return SearchChoice(plan_group, f"reference ({obstacle})")
    from alewm.planning.gpu_search import GraphedSearch  # Triton takes a second to import: only where it is used

    what = "distilled dynamics" if isinstance(model, DistilledModel) else "bfloat16 rollouts"
    return SearchChoice(GraphedSearch(model), f"{what} in a CUDA graph (a GPU with Triton)")


def _why_not_recorded(model: PlanningModel, device: torch.device, search: SearchName) -> str | None:
    if search != "cem":
        return f"{search} runs as it is written"
    if (obstacle := why_no_triton(device)) is not None:
        return obstacle
    if not isinstance(model, (WorldModel, DistilledModel)):
        return f"the model is a {type(model).__name__}"
    if isinstance(model, WorldModel) and model.context_length > LONGEST_FAST_CONTEXT:
        return f"the predictor reads more than {LONGEST_FAST_CONTEXT} positions"
    return None


Numbers = Sequence[int | float] | np.ndarray | Tensor
"""One per dimension of an action."""

Images = np.ndarray | Tensor
"""uint8 [Y, X, 3], or [B, Y, X, 3]."""


@dataclass(frozen=True)
class PlanningConfig:
    """How plans are made and how much of one is executed; the defaults are the paper's."""

    cem: CEMConfig = field(default_factory=CEMConfig)
    """The search."""

    horizon: Count = 5
    """Blocks of actions planned ahead (H)."""

    executed_blocks: Count = 5
    """Blocks executed before planning again."""

    frame_skip: Annotated[int | None, AT_LEAST_1] = None
    """Environment steps per block; if not given, the model's own, and another than that is refused."""

    goal_cost: GoalCost = "active"
    """Compare the goal on the planned prefix (`active`) or on the whole latent (`full`)."""

    capacity: str = "modal"
    """`modal` (argmax of q), `modal-every-plan`, `sample`, `best-of`, `best-of:8,32`, or a capacity such as `32`."""

    seed: CountOrZero = 42
    """First part of every episode's stream of noise."""

    context: Annotated[int | None, AT_LEAST_1] = None
    """Positions the predictor reads; if not given, as many as the model says (three where it says nothing)."""

    episodes_per_batch: Count = 256
    """Most episodes searched at once; bounds memory and changes no episode's noise."""

    search: SearchName = field(default="cem", metadata=ADDED_LATER)
    """How candidates are improved: `cem` (the paper's), `icem`, `mppi` or `gradient`."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.executed_blocks > self.horizon:
            raise InputError(
                f"Only planned blocks can be executed: {self.executed_blocks} executed, but {self.horizon} planned."
            )
        if self.goal_cost not in ("active", "full"):
            raise InputError(f"The goal cost is `active` or `full`, got {self.goal_cost!r}.")
        if self.search not in SEARCHES:
            raise unknown_name("search", self.search, list(SEARCHES))

    def at_frame_skip(self, frame_skip: int) -> "PlanningConfig":
        """This config with a model's frame skip; if it names another one, it is refused."""
        if self.frame_skip not in (None, frame_skip):
            raise InputError(
                f"The model was trained with {frame_skip} environment steps per block, so it cannot plan with "
                f"{self.frame_skip}. Leave frame_skip out."
            )
        return replace(self, frame_skip=frame_skip)


@dataclass(frozen=True)
class Plans:
    """One plan per episode, in normalised action units."""

    blocks: Float[Tensor, "B H A"]
    """Planned action blocks."""

    costs: Float[Tensor, "B"]
    """Predicted goal cost of each plan."""

    capacities: tuple[int, ...]
    """The capacity each was planned with."""


class Planner:
    """Plans with a world model in evaluation mode, on the device the model is on.

    The same images always give the same plan: noise comes from streams named by (seed, episode, plan index).
    """

    def __init__(
        self,
        model: PlanningModel,
        action_mean: Numbers,
        action_std: Numbers,
        config: PlanningConfig | None = None,
        *,
        device: torch.device | str | None = None,
        inner_loop: InnerLoop = plan_group,
    ) -> None:
        self.model, self.support, self.inner_loop = model, model.support, inner_loop
        self.on_iteration: Callable[[], None] | None = None
        """Called whenever candidates of a search are to be scored, for a progress bar."""
        self.config = config or PlanningConfig()
        self.rule = parse_capacity_rule(self.config.capacity, self.support)
        asked = self.config.context
        self.context: int = asked if asked is not None else getattr(model, "context_length", CONTEXT)
        self.device = torch.device(device) if device is not None else _device_of(model)
        self.action_mean = torch.as_tensor(action_mean, dtype=torch.float32, device=self.device)
        self.action_std = torch.as_tensor(action_std, dtype=torch.float32, device=self.device)
        if self.action_mean.ndim != 1 or self.action_mean.shape != self.action_std.shape:
            raise InputError(
                f"The mean and the standard deviation of actions are two vectors of one length (the action's), got "
                f"shapes {tuple(self.action_mean.shape)} and {tuple(self.action_std.shape)}."
            )
        read: int | None = getattr(model, "action_dim", None)
        own = FRAME_SKIP if read is None or read % len(self.action_mean) else read // len(self.action_mean)
        self.frame_skip = self.config.frame_skip or own
        if read not in (None, self.block_dim):
            raise InputError(
                f"The model reads action blocks of {read} numbers, but {self.frame_skip} actions of "
                f"{len(self.action_mean)} are {self.block_dim}. Give the action statistics of the model's own data, "
                f"and leave frame_skip out."
            )
        self.config = replace(self.config, frame_skip=self.frame_skip)

    @property
    def block_dim(self) -> int:
        """Numbers in one block: actions of `frame_skip` steps, one after the other."""
        return self.frame_skip * len(self.action_mean)

    def __call__(self, now: Images, goal: Images) -> Float[Tensor, "*batch steps action"]:
        """Environment actions from the image `now` towards the image `goal`: the `executed_blocks` of a plan.

        Images are uint8 [Y, X, 3] or, for several at once, [B, Y, X, 3]; arrays or tensors.
        """
        first, last = self.pixels(now, "current"), self.pixels(goal, "goal")
        if first.shape != last.shape:
            raise InputError(f"The two images have different shapes: {tuple(first.shape)} and {tuple(last.shape)}.")
        alone = first.ndim == 3
        if alone:
            first, last = first[None], last[None]
        plans, _ = self.plan_between(first, last)
        actions = self.to_actions(plans.blocks[:, : self.config.executed_blocks])
        return actions[0] if alone else actions

    def plan_between(
        self, first: UInt8[Tensor, "B Y X 3"], goal: UInt8[Tensor, "B Y X 3"]
    ) -> tuple[Plans, Float[Tensor, "B C"]]:
        """The first plan of each episode, and the q that its capacity was chosen from."""
        features, latents = self.encode(torch.stack([first, goal], 1))
        q, seed, episodes = self.capacity_distribution(features), self.config.seed, range(len(first))
        choices = self.rule.choices(q, self.support, seed, episodes)
        keys = [(seed, episode, 0) for episode in episodes]
        return self.plan(latents[:, 0], latents[:, 1], choices, keys), q

    @torch.no_grad()
    def encode(self, frames: UInt8[Tensor, "B F Y X 3"]) -> tuple[Float[Tensor, "B F W"], Float[Tensor, "B F D"]]:
        """Features and latents of images, a batch of episodes at a time."""
        if getattr(self.model, "training", False):
            raise InputError("The model is in training mode, where a latent depends on its batch; call model.eval().")
        parts = [
            self.model.encode(part.to(self.device).permute(0, 1, 4, 2, 3))
            for part in torch.split(frames, self.config.episodes_per_batch)
        ]
        features, latents = (torch.cat(side) for side in zip(*parts, strict=True))
        return features, latents

    @torch.no_grad()
    def capacity_distribution(self, features: Float[Tensor, "B 2 W"]) -> Float[Tensor, "B C"]:
        """q(k | first, goal); certain where there is nothing to choose."""
        if len(self.support) == 1:
            return features.new_ones(len(features), 1)
        return self.model.capacity_logits(features).float().softmax(-1)

    @torch.no_grad()
    def plan(
        self,
        z_now: Float[Tensor, "B D"],
        z_goal: Float[Tensor, "B D"],
        choices: Sequence[tuple[int, ...]],
        keys: Sequence[StreamKey],
        initial_blocks: Float[Tensor, "B H A"] | None = None,
        on_search: Callable[[int], None] | None = None,
    ) -> Plans:
        """The best plan of each episode among those of its candidate capacities; a tie goes to the smaller capacity.

        Episodes that plan with the same capacity are searched together. Every capacity an episode tries meets the
        same noise. `on_search` is called after the search of each group, with the number of its episodes.
        """
        if initial_blocks is None:
            initial_blocks = torch.zeros(len(z_now), self.config.horizon, self.block_dim, device=self.device)
        blocks = initial_blocks.clone()
        costs = torch.full((len(z_now),), torch.nan, device=self.device)
        capacities = torch.zeros(len(z_now), dtype=torch.long, device=self.device)
        for capacity, rows in self._groups(choices):
            here = torch.tensor(rows, device=self.device)
            cem = self.config.cem
            noise = candidate_noise(
                [keys[row] for row in rows],
                cem.num_iterations,
                cem.num_candidates,
                self.config.horizon,
                self.block_dim,
                device=self.device,
            )
            found = self.inner_loop(
                self.model,
                z_now[here],
                z_goal[here],
                noise,
                initial_blocks[here],
                SearchSettings(
                    capacity, cem, self.config.goal_cost, self.context, self.config.search, self.on_iteration
                ),
            )
            if on_search is not None:
                on_search(len(rows))
            found_cost = found.cost.to(costs.dtype)
            wins = costs[here].isnan() | (found_cost < costs[here])
            blocks[here] = torch.where(wins[:, None, None], found.mean.to(blocks.dtype), blocks[here])
            costs[here] = torch.where(wins, found_cost, costs[here])
            capacities[here] = torch.where(wins, capacity, capacities[here])
        if not torch.isfinite(costs).all():
            lost = [keys[row][1] for row in (~costs.isfinite()).nonzero().flatten().tolist()]
            raise InputError(
                f"The model's predictions are not finite for {len(lost)} of {len(costs)} episodes (first: {lost[0]}). "
                "Its weights have diverged; use an earlier checkpoint."
            )
        return Plans(blocks, costs, tuple(capacities.tolist()))

    def to_actions(self, blocks: Float[Tensor, "B H A"]) -> Float[Tensor, "B steps action"]:
        """Environment actions, one per step, in the environment's units; never clipped."""
        steps = blocks.reshape(len(blocks), -1, len(self.action_mean))
        return steps * self.action_std + self.action_mean

    def _groups(self, choices: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, list[int]]]:
        for capacity in sorted({k for tried in choices for k in tried}):
            rows = [row for row, tried in enumerate(choices) if capacity in tried]
            for start in range(0, len(rows), self.config.episodes_per_batch):
                yield capacity, rows[start : start + self.config.episodes_per_batch]

    def one_frame(self, image: Images, which: str) -> UInt8[Tensor, "Y X 3"]:
        """One image, as `pixels` gives it; a batch is refused."""
        pixels = self.pixels(image, which)
        if pixels.ndim != 3:
            raise InputError(f"The {which} image must be one frame [Y, X, 3], got a batch of {len(pixels)}.")
        return pixels

    def pixels(self, images: Images, which: str) -> UInt8[Tensor, "*batch Y X 3"]:
        """Images as a tensor, of the size the model reads; `which` names them in messages.

        Other sizes are averaged down by area, as training does. A model that does not say its size gets them as they
        are.
        """
        # A frame that was turned around by a slice, as BGR to RGB is, has strides that torch refuses.
        pixels = images if isinstance(images, torch.Tensor) else np.array(images)
        if pixels.dtype not in (torch.uint8, np.uint8) or pixels.ndim not in (3, 4) or pixels.shape[-1] != 3:
            raise InputError(
                f"The {which} image must be uint8 [Y, X, 3] or a batch [B, Y, X, 3], got {pixels.dtype} "
                f"{list(pixels.shape)}."
            )
        size = getattr(self.model, "image_size", None)
        if size is not None and min(pixels.shape[-3:-1]) < size:
            height, width = pixels.shape[-3:-1]
            raise InputError(f"The {which} image is {height} x {width}, but the model reads {size} x {size} or larger.")
        return torch.as_tensor(pixels) if size is None else area_downsample(torch.as_tensor(pixels), size)

    def __repr__(self) -> str:
        config, cem = self.config, self.config.cem
        search = "" if config.search == "cem" else f"search={config.search!r}, "
        return (
            f"Planner({type(self.model).__name__}, capacity={config.capacity!r}, horizon={config.horizon}, "
            f"executed_blocks={config.executed_blocks}, {search}{cem.num_candidates} candidates, {cem.num_iterations} "
            f"iterations, device={str(self.device)!r})"
        )


def _device_of(model: PlanningModel) -> torch.device:
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return parameter.device if parameter is not None else torch.device("cpu")
