"""What the model imagines, shown without a decoder: the recorded frame whose latent is nearest to the imagined one."""

import torch

from alewm.model.world_model import WorldModel
from alewm.shapes import Float, Tensor, UInt8
from alewm.training.losses import Losses

NUM_WINDOWS = 4
"""Windows in one picture."""


@torch.no_grad()
def rollout_picture(
    model: WorldModel,
    pixels: UInt8[Tensor, "B F Y X 3"],
    actions: Float[Tensor, "B _ A"],
    losses: Losses,
    num_windows: int = NUM_WINDOWS,
) -> UInt8[Tensor, "rows columns 3"]:
    """Two rows of frames per window: what was seen, and below it what was imagined from its first frame.

    From each window's first latent the recorded actions are rolled out, at the capacity that is likeliest for these
    windows together; an imagined latent is shown as the nearest of all frames in the batch, over the coordinates in
    use. `losses` is the objective's value for this batch, which has encoded it.
    """
    # Spread over the batch: validation windows come in the order of the file, and neighbours look alike.
    chosen = torch.linspace(0, len(pixels) - 1, min(num_windows, len(pixels)), device=pixels.device).long()
    shown = pixels[chosen]
    capacity = model.support.capacities[int(losses.q[chosen].mean(0).argmax())]
    z = losses.latents[..., :capacity]
    first = z[chosen, 0]
    imagined = model.imagine_prefix(first, actions[chosen], capacity, model.context_length)
    z_hat = torch.stack([first, *imagined], dim=1).to(z.dtype)
    nearest = torch.cdist(z_hat.flatten(0, 1), z.flatten(0, 1)).argmin(-1)
    found = pixels.flatten(0, 1)[nearest].view_as(shown)
    pairs = torch.stack([shown, found], dim=1)
    num, _, num_frames, height, width, _ = pairs.shape
    return pairs.permute(0, 1, 3, 2, 4, 5).reshape(num * 2 * height, num_frames * width, 3).cpu()
