"""Fitting distilled dynamics: the encoder's latents of recorded episodes, and a small network that continues them.

Every frame of the episodes is encoded once. A training sample is a start, the H action blocks that follow and the H + 1
latents between them, at the frame skip of planning. The network rolls out all H blocks from the first latent, and its
loss is the mean square error over all of them: what matters to a plan is where H blocks lead, not where one does.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from alewm.capacity.support import modal_index
from alewm.config import Count, CountOrZero, NotNegative, Positive, check_ranges
from alewm.data.action_statistics import ActionStatistics
from alewm.data.loader import frames_ahead
from alewm.data.splits import GOAL_OFFSET, draw_pairs
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from alewm.model.world_model import WorldModel
from alewm.planning.distilled import DistilledDynamics, DynamicsConfig
from alewm.shapes import FRAME_SKIP, Float, Int, Tensor
from alewm.training.random_streams import seeded_generator

NUM_VALIDATIONS = 10
"""Times the validation error is measured; the network with the lowest is kept."""

Advance = Callable[[int], None]
"""Called with the number of units that have been done since the last call."""


@dataclass(frozen=True)
class DistillConfig:
    """How distilled dynamics are fitted."""

    hidden_dim: Count = 128
    """Units of each of the network's two hidden layers."""
    horizon: Count = 5
    """Blocks it is fitted to roll out (H); that of planning."""
    num_updates: Count = 3000
    """Updates."""
    batch_size: Count = 1024
    """Windows per update. With a quarter of them, at 3e-3, a small Reacher model reached 26 % of goals, not 40."""
    learning_rate: Positive = 2e-2
    """Highest learning rate of one cycle that rises for 30 % of the updates and falls to zero."""
    weight_decay: NotNegative = 1e-4
    """AdamW's weight decay."""
    num_episodes: CountOrZero = 0
    """Training episodes to encode, spread evenly over the file; 0 for all."""
    seed: CountOrZero = 3072
    """Of the first weights and the order of windows."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class LatentWindows:
    """Recorded episodes as latents, and the places in them where a rollout of H blocks can begin."""

    latents: Float[Tensor, "rows width"]
    """The latent of every encoded row of the file; other rows are NaN."""
    actions: Float[Tensor, "rows action"]
    """The normalised action of every row."""
    starts: Int[Tensor, " windows"]
    """Rows at which windows start."""
    horizon: int
    frame_skip: int = FRAME_SKIP
    """Rows from one latent to the next."""

    def __len__(self) -> int:
        return len(self.starts)

    def take(
        self, which: Int[Tensor, "B"], capacity: int
    ) -> tuple[Float[Tensor, "B latents k"], Float[Tensor, "B H A"]]:
        """The H + 1 prefixes and H action blocks of the windows `which`."""
        starts, device = self.starts[which], self.latents.device
        frames = starts[:, None] + self.frame_skip * torch.arange(self.horizon + 1, device=device)
        steps = starts[:, None] + torch.arange(self.frame_skip * self.horizon, device=device)
        blocks = self.actions[steps].reshape(len(which), self.horizon, -1)
        return self.latents[frames][..., :capacity], blocks


@torch.no_grad()
def encode_windows(
    model: WorldModel,
    store: EpisodeStore,
    episodes: Sequence[int],
    statistics: ActionStatistics,
    *,
    horizon: int,
    frame_skip: int,
    width: int,
    advance: Advance = lambda _: None,
) -> LatentWindows:
    """All windows of `episodes`, with the first `width` coordinates of every frame's latent, on the model's device."""
    starts = _window_starts(store, episodes, horizon, frame_skip)
    if not len(starts):
        raise InputError(
            f"None of {len(episodes)} episodes of {store.path} has the {horizon * frame_skip + 1} rows that {horizon} "
            f"blocks of {frame_skip} actions take. Distil with a smaller --horizon."
        )
    device = model.log_prior.device
    latents = torch.full((store.num_rows, width), math.nan, device=device)
    rows = store.drawn_rows(episodes)
    places = torch.as_tensor(rows, device=device)
    for part, pixels in frames_ahead(store, rows, device):
        latents[places[part]] = model.encode(pixels[:, None]).latents[:, 0, :width].float()
        advance(len(pixels))
    if not latents[places].isfinite().all():
        raise InputError("The model's latents are not finite: its weights have diverged. Use an earlier checkpoint.")
    actions = torch.as_tensor(statistics.normalize(store.actions), device=device)
    return LatentWindows(latents, actions, torch.as_tensor(starts, device=device), horizon, frame_skip)


@torch.no_grad()
def chosen_capacities(model: WorldModel, store: EpisodeStore, episodes: Sequence[int], most: int = 200) -> Counter[int]:
    """How many of at most `most` pairs of `episodes` choose each capacity by the modal rule."""
    support = model.support
    if len(support) == 1:
        return Counter({support.latent_dim: 1})
    long_enough = [episode for episode in episodes if store.lengths[episode] > GOAL_OFFSET]
    pairs = draw_pairs(store, long_enough[:most])
    if not pairs:
        raise InputError(f"No training episode of {store.path} is longer than {GOAL_OFFSET} rows: name a --capacity.")
    # A pair starts at any row; where only one row of several was drawn, at the drawn one before it.
    every = store.draw_every
    rows = np.array([(pair.start_row, pair.goal_row) for pair in pairs])
    offsets = store.offsets[np.array([pair.episode for pair in pairs])][:, None]
    rows = offsets + (rows - offsets) // every * every
    frames = frames_ahead(store, rows.reshape(-1), model.log_prior.device)
    features = torch.cat([model.encode(pixels[:, None]).features for _, pixels in frames])
    chosen = modal_index(model.capacity_logits(features.view(*rows.shape, -1)))
    return Counter(support.capacities[c] for c in chosen.tolist())


def fit_dynamics(
    train: LatentWindows,
    validation: LatentWindows,
    capacity: int,
    config: DistillConfig,
    *,
    advance: Advance = lambda _: None,
) -> DistilledDynamics:
    """The network that rolls out `validation` windows best among those met while fitting `train`."""
    device = train.latents.device
    generator = seeded_generator(config.seed, f"distill-{capacity}")
    blocks = train.frame_skip * train.actions.shape[1]
    network = DistilledDynamics(DynamicsConfig(capacity, blocks, config.hidden_dim))
    _first_weights(network, generator)
    _standardise(network, train)
    network.to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.learning_rate, config.num_updates)
    best, best_state = math.inf, dict[str, Tensor]()
    every = max(1, config.num_updates // NUM_VALIDATIONS)
    for step in range(1, config.num_updates + 1):
        which = torch.randint(len(train), (config.batch_size,), generator=generator).to(device)
        z, a = train.take(which, capacity)
        loss = _squared_errors(network, z, a).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % every == 0 or step == config.num_updates:
            error = float(np.mean(open_loop_errors(network.imagine, validation, capacity)))
            if error < best:
                best = error
                best_state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
            advance(step % every or every)
    if not best_state:
        raise InputError("Fitting did not converge: no validation error was finite. Try a smaller --learning-rate.")
    network.load_state_dict(best_state)
    return network.eval()


@torch.no_grad()
def open_loop_errors(
    imagine: Callable[[Tensor, Tensor], Sequence[Tensor]], windows: LatentWindows, capacity: int, most: int = 4096
) -> list[float]:
    """The mean square error of 1 ... H blocks ahead over at most `most` windows, evenly spaced.

    As a share of the prefix's variance over these windows: 1 is no better than its mean.
    """
    which = torch.arange(0, len(windows), max(1, len(windows) // most), device=windows.starts.device)
    z, a = windows.take(which, capacity)
    variance = z.flatten(0, 1).var(0).sum()
    imagined = torch.stack(list(imagine(z[:, 0].contiguous(), a)), 1)
    errors: list[float] = ((imagined - z[:, 1:]).square().sum(-1).mean(0) / variance).tolist()
    return errors


def _window_starts(store: EpisodeStore, episodes: Sequence[int], horizon: int, frame_skip: int) -> np.ndarray:
    """Rows from which `horizon` blocks of actions and the frame after them are in the same episode."""
    if frame_skip % store.draw_every:
        raise InputError(
            f"{store.path} has a frame for one of {store.draw_every} rows, and latents are needed {frame_skip} rows "
            f"apart. Collect it again with --draw-every 1 or {frame_skip}."
        )
    parts = [store.rows_of(episode) for episode in episodes]
    span = horizon * frame_skip
    starts = [np.arange(part.start, part.stop - span, store.draw_every) for part in parts]
    return np.concatenate(starts) if starts else np.empty(0, np.int64)


def _squared_errors(
    network: DistilledDynamics, z: Float[Tensor, "B latents k"], a: Float[Tensor, "B H A"]
) -> Float[Tensor, "B H k"]:
    """In units of each coordinate's standard deviation."""
    imagined = torch.stack(network.imagine(z[:, 0].contiguous(), a), 1)
    return ((imagined - z[:, 1:]) / network.std).square()


def _first_weights(network: DistilledDynamics, generator: torch.Generator) -> None:
    """Uniform weights, as the library's, from `generator`; the first layer has two parts and one number of inputs."""
    config = network.config
    inputs = {"state_layer": config.capacity + config.action_dim, "action_layer": config.capacity + config.action_dim}
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            bound = inputs.get(name.split(".")[0], config.hidden_dim) ** -0.5
            parameter.uniform_(-bound, bound, generator=generator)


def _standardise(network: DistilledDynamics, train: LatentWindows) -> None:
    z = train.latents[train.starts, : network.config.capacity].cpu()
    network.mean.copy_(z.mean(0))
    # A coordinate that never varies has nothing to be learned, and must not divide by zero.
    network.std.copy_(z.std(0).clamp(min=1e-6))
