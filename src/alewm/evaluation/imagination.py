"""Imagined beside real: open-loop rollouts from held-out frames under the actions that were recorded after them.

No simulator is needed. From the latent of one frame the model imagines H blocks ahead, with each capacity, and each
imagined latent is compared with the latent of the frame that was recorded. Frames are drawn by the run's decoder; where
none was fitted, the nearest recorded training frame stands for an imagined latent.

A folder `imagination/` beside the checkpoints keeps what was found: `imagination.json`, bound to the weights, and
`frames.png`. It is made anew when the weights, the decoder or the distilled dynamics change.
"""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from alewm.capacity.support import modal_index
from alewm.data.windows import WindowShape
from alewm.errors import InputError
from alewm.evaluation.decoder import DECODER, FITTED_DECODER, PixelDecoder, as_png, find_decoder, picture_grid
from alewm.evaluation.held_out import SAMPLE_SEED, EncodedWindows, Trained
from alewm.files import read_if_there, write_json
from alewm.model.checkpoint_files import weights_sha256
from alewm.planning.distilled import DISTILLED, distilled_capacities, load_distilled
from alewm.runs.folder import new_folder, provenance
from alewm.shapes import Float, Tensor, UInt8
from alewm.training.checkpoint import latest_checkpoint

FORMAT = 1
IMAGINATION = "imagination"
"""The folder in a run folder."""
DESCRIPTION, FRAMES = "imagination.json", "frames.png"

LONGEST_HORIZON = 10
PLANNED_BLOCKS = 5
"""Blocks from the first frame to the one that stands for a goal when the capacity is chosen."""
MOST_WINDOWS = 200
NUM_STRIPS = 3
NUM_NEIGHBOURS = 2000
"""Training frames among which the nearest is looked for."""
BAND = (0.1, 0.9)
"""Quantiles over windows that a band covers."""
HOLDING_STILL = "holding still"


def imagine_run(run: Path, *, data_path: Path | None = None) -> Path:
    """The folder with what the newest checkpoint of `run` imagines, found beside it or made and written there.

    The data file is the one the run was trained on, at `data_path` if it has moved.
    """
    checkpoint, folder = latest_checkpoint(run), run / IMAGINATION
    made_from = {
        "weights_sha256": weights_sha256(checkpoint),
        "decoder": read_if_there(run / DECODER / FITTED_DECODER.file).get("settings"),
        "distilled": [*distilled_capacities(run / DISTILLED)],
    }
    if read_if_there(folder / DESCRIPTION).get("made_from") == made_from:
        return folder
    with Trained.open(run, data_path, torch.device("cpu")) as trained:
        split, windows = held_out_windows(trained)
        capacity = _own_capacity(trained, windows)
        errors = _errors(run, trained, windows, capacity)
        drawn_by, rows, columns, picture = _strips(run, trained, windows, capacity)
    about = {
        "format": FORMAT,
        "made_from": made_from,
        "split": split,
        "windows": len(windows.rows),
        "frame_skip": trained.shape.frame_skip,
        "capacity": capacity,
        "errors": errors,
        "strips": {"drawn_by": drawn_by, "rows": rows, "columns": columns, "count": min(NUM_STRIPS, len(windows.rows))},
        "made_with": provenance(),
    }
    if folder.exists():
        shutil.rmtree(folder)
    with new_folder(folder) as partial:
        (partial / FRAMES).write_bytes(as_png(picture))
        write_json(partial / DESCRIPTION, about)
    return folder


def held_out_windows(trained: Trained) -> tuple[str, EncodedWindows]:
    """A split, and a window of each of at most 200 of its episodes, starting where there is room for H blocks."""
    store, skip = trained.store, trained.shape.frame_skip
    if skip % store.draw_every:
        raise InputError(
            f"{store.path} has a frame for one of {store.draw_every} rows, and frames {skip} rows apart are needed."
        )
    for split in ("test", "validation"):
        episodes = [e for e in trained.splits.part(split) if store.lengths[e] > skip]
        if episodes:
            break
    else:
        raise InputError(f"No held-out episode of {store.path} has the {skip + 1} rows of a block of actions.")
    lengths = np.array([store.lengths[e] for e in episodes])
    # As far as half of the episodes reach, so that the error at every horizon is over the same windows.
    horizon = int(min(LONGEST_HORIZON, (np.median(lengths) - 1) // skip))
    long_enough = [e for e in episodes if store.lengths[e] > horizon * skip][:MOST_WINDOWS]
    starts = []
    for episode in long_enough:
        span = store.rows_of(episode)
        possible = np.arange(span.start, span.stop - horizon * skip, store.draw_every)
        starts.append(int(np.random.default_rng([SAMPLE_SEED, episode]).choice(possible)))
    return split, trained.windows_at(np.array(starts), WindowShape(horizon + 1, skip))


def error_bands(
    imagined: Float[Tensor, "B H k"], real: Float[Tensor, "B H k"], variance: float
) -> dict[str, list[float]]:
    """Mean and band of the squared error over windows, 1 ... H blocks ahead, as a share of `variance`."""
    errors = (imagined - real).square().sum(-1) / variance
    low, high = errors.quantile(torch.tensor(BAND), dim=0)
    return {"mean": errors.mean(0).tolist(), "low": low.tolist(), "high": high.tolist()}


@torch.no_grad()
def _errors(run: Path, trained: Trained, windows: EncodedWindows, capacity: int) -> dict[str, dict[str, list[float]]]:
    """By what imagined: the predictor with each capacity, distilled dynamics, and a model that predicts no change."""
    model, device = trained.model, trained.device
    distilled = None
    if found := distilled_capacities(run / DISTILLED):
        distilled = load_distilled(model, weights_sha256(latest_checkpoint(run)), run / DISTILLED)
    errors: dict[str, dict[str, list[float]]] = {}
    for k in model.support.capacities:
        z = windows.latents[..., :k]
        variance = float(z.flatten(0, 1).var(0).sum().clamp(min=1e-12))
        first, actions = z[:, 0].to(device).contiguous(), windows.actions.to(device)
        imagined = model.imagine_prefix(first, actions, k, model.context_length)
        errors[f"k = {k}"] = error_bands(torch.stack(imagined, 1).float().cpu(), z[:, 1:], variance)
        if distilled is not None and k in found:
            imagined = distilled.imagine_prefix(first, actions, k, model.context_length)
            errors[f"distilled, k = {k}"] = error_bands(torch.stack(imagined, 1).float().cpu(), z[:, 1:], variance)
        if k == capacity:
            errors[HOLDING_STILL] = error_bands(z[:, :1].expand_as(z[:, 1:]), z[:, 1:], variance)
    return errors


@torch.no_grad()
def _strips(
    run: Path, trained: Trained, windows: EncodedWindows, capacity: int
) -> tuple[str, list[str], list[int], UInt8[Tensor, "Y X 3"]]:
    """What drew the frames, names of a strip's rows, blocks ahead of its columns, and all strips as a picture."""
    chosen = np.linspace(0, len(windows.rows) - 1, min(NUM_STRIPS, len(windows.rows))).round().astype(int)
    horizon = windows.rows.shape[1] - 1
    columns = sorted({0, 1, 2, 3, *range(5, horizon + 1, 5), horizon} & set(range(horizon + 1)))
    decoder = find_decoder(run, trained.device)
    draw: _Nearest | PixelDecoder = _Nearest(trained) if decoder is None else decoder
    real = windows.latents[chosen].to(trained.device)
    size = trained.model.image_size
    strips = {"recorded": trained.frames(windows.rows[chosen].reshape(-1)).view(len(chosen), -1, size, size, 3)}
    if decoder is not None:
        strips[f"recorded, decoded from k = {capacity}"] = draw.frames(real[..., :capacity])
    for k in sorted({capacity, trained.model.support.latent_dim}):
        first, actions = real[:, 0, :k].contiguous(), windows.actions[chosen].to(trained.device)
        imagined = trained.model.imagine_prefix(first, actions, k, trained.model.context_length)
        strips[f"imagined, k = {k}"] = draw.frames(torch.stack([first, *imagined], 1).float())
    cells = torch.stack([frames.cpu()[:, columns] for frames in strips.values()], 1)
    drawn_by = "decoder" if decoder is not None else "nearest training frame"
    return drawn_by, list(strips), columns, picture_grid(cells.flatten(0, 1))


class _Nearest:
    """Draws a prefix as the training frame whose latent is nearest in its coordinates."""

    def __init__(self, trained: Trained) -> None:
        rows = trained.rows("train", NUM_NEIGHBOURS)
        self.trained, self.rows = trained, rows
        self.latents = trained.encode_rows(rows)[1]

    def frames(self, z: Float[Tensor, "*batch k"]) -> UInt8[Tensor, "*batch Y X 3"]:
        """The frames found."""
        flat = z.reshape(-1, z.shape[-1]).cpu()
        nearest = torch.cdist(flat, self.latents[:, : flat.shape[1]]).argmin(-1)
        frames = self.trained.frames(self.rows[nearest.numpy()])
        return frames.reshape(*z.shape[:-1], *frames.shape[1:])


@torch.no_grad()
def _own_capacity(trained: Trained, windows: EncodedWindows) -> int:
    """The capacity that most windows choose by the modal rule, from their first frame and the end of a plan."""
    support = trained.model.support
    if len(support) == 1:
        return support.latent_dim
    last = min(PLANNED_BLOCKS, windows.rows.shape[1] - 1)
    logits = trained.model.capacity_logits(windows.features[:, [0, last]].to(trained.device))
    counts: Counter[int] = Counter(support.capacities[c] for c in modal_index(logits).tolist())
    return min(counts, key=lambda k: (-counts[k], k))
