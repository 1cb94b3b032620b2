"""The decoder: a small network that draws what a prefix of the latent holds, fitted after training.

The world model has no decoder and needs none to plan. This one is fitted to frozen latents, for all capacities of the
support at once: it is given k coordinates and the number k, the others are zero, and it draws the frame.

    w = (z - mean) / std, zero beyond the k-th coordinate
    x = mean frame + network(w, k)

A sharp detail in a decoded frame shows that the prefix determines it. The reverse does not hold: the squared error
makes the network draw the average of all frames that have this prefix, and a static detail is drawn from memory.

On disk a folder `decoder/` beside the checkpoints holds the network in float16, `decoder.json` (`alewm.runs.fitted`)
and `examples.png`: held-out frames, one per row: recorded, then decoded from each capacity.
"""

import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

from alewm.capacity.support import CapacitySupport
from alewm.config import Count, CountOrZero, Positive, check_ranges, from_dict, to_dict
from alewm.errors import InputError
from alewm.evaluation.held_out import Trained
from alewm.model.checkpoint_files import weights_sha256
from alewm.progress import Progress
from alewm.resize import area_downsample
from alewm.runs.fitted import FORMAT, FittedKind
from alewm.runs.folder import provenance
from alewm.shapes import Float, Int, Tensor, UInt8
from alewm.training.checkpoint import latest_checkpoint
from alewm.training.random_streams import seeded_generator

DECODER = "decoder"
"""The folder in a run folder."""
EXAMPLES = "examples.png"

FIRST_SIDE = 8
"""Largest side of the first feature map; each further one doubles it."""
PIECE_PIXELS = 128 * 28 * 28
"""On a CPU a batch of more pixels is drawn in pieces: memory that is asked for anew at every update would take most of
the time, six times as long in all at 224 pixels."""
VALIDATION_FRAMES = 2000
NUM_EXAMPLES = 6
LARGEST_EXAMPLE = 96
"""Pixels per side of the frames in `examples.png`."""


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of the network."""

    capacities: tuple[int, ...]
    """The support 𝒦 of the world model."""
    image_size: Count
    """Pixels per side of what it draws: what the encoder reads."""
    hidden_dim: Count
    """Units of the hidden layer."""
    channels: Count
    """Channels of the smaller feature maps; the two largest have fewer."""

    def __post_init__(self) -> None:
        check_ranges(self)
        CapacitySupport(self.capacities)


@dataclass(frozen=True)
class DecodeConfig:
    """How a decoder is fitted."""

    hidden_dim: Count = 96
    """Units of its hidden layer."""
    channels: Count = 24
    """Channels of its feature maps."""
    num_updates: Count = 3000
    """Updates."""
    batch_size: Count = 128
    """Frames per update, each with a capacity drawn uniformly from the support."""
    learning_rate: Positive = 2e-3
    """Highest learning rate of one cycle that rises for 30 % of the updates and falls to zero."""
    num_frames: Count = 20_000
    """Training frames it is fitted to; fewer where there are fewer."""
    seed: CountOrZero = 3072
    """Of the first weights, the frames and the capacities."""

    def __post_init__(self) -> None:
        check_ranges(self)


class PixelDecoder(nn.Module):
    """Frames from prefixes of any capacity in the support; a new one draws the mean frame, which is black."""

    mean: Tensor
    std: Tensor
    mean_frame: Tensor

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config, self.support = config, CapacitySupport(config.capacities)
        width, channels = self.support.latent_dim, config.channels
        self.sides = _sides(config.image_size)
        # Fewer channels at the two largest sides, where nearly all the time goes.
        widths = [channels] * (len(self.sides) + 1)
        widths[-2:] = [-(-2 * channels // 3), -(-channels // 3)]
        with torch.device("meta"):  # the library's first weights would be drawn from the global generator
            self.latent_layer = nn.Linear(width + len(self.support), config.hidden_dim)
            self.map_layer = nn.Linear(config.hidden_dim, channels * self.sides[0] ** 2)
            self.convolutions = nn.ModuleList(
                nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise([channels, *widths[1:]])
            )
            self.output_layer = nn.Conv2d(widths[-1], 3, 1)
        self.to_empty(device="cpu")
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("std", torch.ones(width))
        self.register_buffer("mean_frame", torch.zeros(3, config.image_size, config.image_size))

    def forward(self, z: Float[Tensor, "N D"], capacity_index: Int[Tensor, " N"]) -> Float[Tensor, "N 3 Y X"]:
        """Frames with values about 0 to 1, from the first coordinates that each row's capacity has of `z`."""
        ks = torch.tensor(self.support.capacities, device=z.device)[capacity_index]
        is_given = torch.arange(self.support.latent_dim, device=z.device) < ks[:, None]
        w = torch.where(is_given, (z - self.mean) / self.std, 0)
        which = functional.one_hot(capacity_index, len(self.support)).to(w.dtype)
        hidden = functional.silu(self.latent_layer(torch.cat([w, which], -1)))
        x = functional.silu(self.map_layer(hidden)).view(len(z), self.config.channels, self.sides[0], self.sides[0])
        for side, convolution in zip(self.sides, self.convolutions, strict=True):
            if x.shape[-1] != side:
                x = functional.interpolate(x, size=(side, side), mode="nearest")
            x = functional.silu(convolution(x))
        frames: Tensor = self.mean_frame + self.output_layer(x)
        return frames

    @torch.no_grad()
    def frames(self, z: Float[Tensor, "*batch k"]) -> UInt8[Tensor, "*batch Y X 3"]:
        """What the decoder draws for prefixes of k coordinates, k a capacity of the support."""
        k = z.shape[-1]
        rows = functional.pad(z.reshape(-1, k).float(), (0, self.support.latent_dim - k))
        which = torch.full((len(rows),), self.support.index_of(k), device=z.device)
        parts = [self(*part) for part in zip(torch.split(rows, 256), torch.split(which, 256), strict=True)]
        drawn = (torch.cat(parts).clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
        return drawn.reshape(*z.shape[:-1], *drawn.shape[1:])


FITTED_DECODER = FittedKind(
    "decoder",
    "decoder.json",
    "alewm decode RUN.",
    lambda sizes: PixelDecoder(from_dict(DecoderConfig, sizes)),
    needed=("validation_error",),
    pictures=(EXAMPLES,),
    stored_as=torch.float16,
)


def fit_decoder(
    latents: Float[Tensor, "n D"],
    pixels: UInt8[Tensor, "n Y X 3"],
    capacities: Sequence[int],
    config: DecodeConfig,
    *,
    device: torch.device,
    advance: Callable[[int], None] = lambda _: None,
) -> PixelDecoder:
    """The decoder of these latents, which belong to these frames; both may be on the CPU."""
    network = PixelDecoder(DecoderConfig(tuple(capacities), pixels.shape[1], config.hidden_dim, config.channels))
    generator = seeded_generator(config.seed, "decoder")
    _first_weights(network, generator)
    network.mean.copy_(latents.mean(0))
    network.std.copy_(latents.std(0).clamp(min=1e-6))  # a coordinate that never varies must not divide by zero
    network.mean_frame.copy_(_mean_frame(pixels))
    network.to(device).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.learning_rate, config.num_updates)
    piece = config.batch_size
    if device.type == "cpu":
        piece = min(piece, max(1, PIECE_PIXELS // pixels.shape[1] ** 2))
    for _ in range(config.num_updates):
        rows = torch.randint(len(latents), (config.batch_size,), generator=generator)
        which = torch.randint(len(network.support), (config.batch_size,), generator=generator).to(device)
        optimizer.zero_grad()
        for part, indices in zip(torch.split(rows, piece), torch.split(which, piece), strict=True):
            drawn = network(latents[part].to(device), indices)
            error = (drawn - _unit(pixels[part].to(device))).square().mean()
            (error * (len(part) / config.batch_size)).backward()
        optimizer.step()
        schedule.step()
        advance(1)
    return network.eval()


@torch.no_grad()
def decoding_errors(
    network: PixelDecoder, latents: Float[Tensor, "n D"], pixels: UInt8[Tensor, "n Y X 3"]
) -> dict[str, float]:
    """The mean square error of decoded frames by capacity, as a share of the pixels' variance over these frames."""
    device, size = network.mean.device, 256
    mean_frame = _mean_frame(pixels).to(device)
    total = [0.0] * (len(network.support) + 1)
    for z, part in zip(torch.split(latents, size), torch.split(pixels, size), strict=True):
        x = _unit(part.to(device))
        total[-1] += float((x - mean_frame).square().sum())
        for index in range(len(network.support)):
            which = torch.full((len(z),), index, device=device)
            total[index] += float((network(z.to(device), which).clamp(0, 1) - x).square().sum())
    variance = max(total[-1], 1e-12)
    return {str(k): error / variance for k, error in zip(network.support.capacities, total, strict=False)}


@dataclass(frozen=True)
class DecodedRun:
    """The decoder that a run has."""

    path: Path
    """Its folder."""
    description: dict[str, Any]
    """The content of `decoder.json`."""


def decode(
    run: str | Path,
    config: DecodeConfig | None = None,
    *,
    data_path: Path | None = None,
    device: torch.device | None = None,
    is_silent: bool = False,
) -> DecodedRun:
    """The decoder of the newest checkpoint of `run`, found in `RUN/decoder` or fitted and written there.

    The data file is the one the run was trained on, at `data_path` if it has moved.
    """
    run, config, device = Path(run), config or DecodeConfig(), device or torch.device("cpu")
    checkpoint, folder = latest_checkpoint(run), run / DECODER
    asked = {"weights_sha256": weights_sha256(checkpoint), "settings": to_dict(config)}
    if FITTED_DECODER.is_in(folder):
        found = FITTED_DECODER.describe(folder)
        FITTED_DECODER.refuse_other(folder, found, asked)
        return DecodedRun(folder, found)
    began = time.perf_counter()
    with Trained.open(run, data_path, device) as trained:
        rows, held_out = trained.rows("train", config.num_frames), trained.rows("validation", VALIDATION_FRAMES)
        sides = []
        with Progress("encoding frames", 2, "splits", is_silent=is_silent) as bar:
            for part in (rows, held_out):
                sides.append((trained.encode_rows(part)[1], trained.frames(part)))
                bar.advance()
        if not sides[0][0].isfinite().all():
            raise InputError("The model's latents are not finite: its weights have diverged. Use another checkpoint.")
        with Progress("fitting the decoder", config.num_updates, "updates", is_silent=is_silent) as bar:
            capacities = trained.model.support.capacities
            network = fit_decoder(*sides[0], capacities, config, device=device, advance=bar.advance)
    about = {
        "format": FORMAT,
        "config": to_dict(network.config),
        **asked,
        "checkpoint": checkpoint.name,
        "fingerprint": trained.learned.fingerprint,
        "training_frames": len(rows),
        "validation_frames": len(held_out),
        "validation_error": decoding_errors(network, *sides[1]),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "seconds": time.perf_counter() - began,
        "made_with": provenance(),
    }
    chosen = np.linspace(0, len(held_out) - 1, NUM_EXAMPLES).round().astype(int)
    examples = _examples(network, *(side[chosen] for side in sides[1]))
    FITTED_DECODER.write(folder, network, about, as_png(examples))
    return DecodedRun(folder, about)


def find_decoder(run: Path, device: torch.device) -> PixelDecoder | None:
    """The decoder of the newest weights of `run`; None where none was fitted, and refused where to other weights."""
    folder = run / DECODER
    if not FITTED_DECODER.is_in(folder):
        return None
    return FITTED_DECODER.read(folder, weights_sha256(latest_checkpoint(run))).to(device)


def decoder_table(description: Mapping[str, Any]) -> str:
    """Size and error by capacity, for a terminal."""
    errors = description["validation_error"]
    lines = [
        f"{'capacity':<24}" + "".join(f"{k:>9}" for k in errors),
        f"{'error / pixel variance':<24}" + "".join(f"{error:>9.4f}" for error in errors.values()),
        f"{description['parameters']:,} parameters, {description['seconds']:.0f} s",
    ]
    return "\n".join(lines)


def _examples(
    network: PixelDecoder, latents: Float[Tensor, "n D"], pixels: UInt8[Tensor, "n Y X 3"]
) -> UInt8[Tensor, "height width 3"]:
    """A row per frame: the recorded one, then what each capacity decodes to."""
    z = latents.to(network.mean.device)
    columns = [pixels, *(network.frames(z[:, :k]).cpu() for k in network.support.capacities)]
    return picture_grid(torch.stack(columns, 1))


def picture_grid(cells: UInt8[Tensor, "rows columns Y X 3"]) -> UInt8[Tensor, "height width 3"]:
    """Frames as one picture, made smaller where they are large."""
    rows, columns = cells.shape[:2]
    small = area_downsample(cells.flatten(0, 1), min(LARGEST_EXAMPLE, cells.shape[-2]))
    size = small.shape[1]
    grid = small.reshape(rows, columns, size, size, 3).permute(0, 2, 1, 3, 4)
    return grid.reshape(rows * size, columns * size, 3).contiguous()


def as_png(picture: UInt8[Tensor, "Y X 3"]) -> bytes:
    """The picture as a file."""
    buffer = io.BytesIO()
    Image.fromarray(picture.numpy()).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def _sides(image_size: int) -> list[int]:
    """Sides of the feature maps, the smallest first."""
    sides = [image_size]
    while sides[0] > FIRST_SIDE:
        sides.insert(0, -(-sides[0] // 2))
    return sides


def _unit(pixels: UInt8[Tensor, "n Y X 3"]) -> Float[Tensor, "n 3 Y X"]:
    return pixels.permute(0, 3, 1, 2).float() / 255


def _mean_frame(pixels: UInt8[Tensor, "n Y X 3"]) -> Float[Tensor, "3 Y X"]:
    """The mean of all frames, of which only some are floats at a time: 20,000 of 224 pixels would be 12 GB."""
    parts = torch.split(pixels, max(1, 20_000 * 28 * 28 // pixels.shape[1] ** 2))
    return torch.stack([_unit(part).mean(0) * (len(part) / len(pixels)) for part in parts]).sum(0)


def _first_weights(network: PixelDecoder, generator: torch.Generator) -> None:
    """Uniform weights with the variance that keeps activations, from `generator`; the last layer starts at zero."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim > 1 and not name.startswith("output_layer"):
                bound = (3 / parameter[0].numel()) ** 0.5
                parameter.uniform_(-bound, bound, generator=generator)
