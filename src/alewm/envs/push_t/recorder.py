"""Recording one Push-T episode: a start, something that acts, and the columns and frames that come of it."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from alewm.envs.push_t import geometry
from alewm.envs.push_t.physics import PushTWorld
from alewm.envs.push_t.render import shared_renderer
from alewm.envs.push_t.simulator import recorded_columns
from alewm.envs.recording import full_length_episode
from alewm.resize import area_downsample
from alewm.shapes import Float

Act = Callable[[int, np.ndarray], np.ndarray]
"""(step, state [7]) to an action [2]."""


def record_episode(
    start: Float[np.ndarray, "7"],
    act: Act,
    num_steps: int,
    labels: Mapping[str, np.ndarray],
    draw_every: int = 0,
) -> dict[str, np.ndarray]:
    """A finished episode as columns; with `pixels` of native size, first, unless `draw_every` is 0.

    `labels` are further columns, of `num_steps` + 1 rows or more. Actions are executed as they are recorded: in
    float32.
    """
    world, state, size = PushTWorld(start), start, geometry.IMAGE_SIZE
    rows: list[dict[str, np.ndarray]] = []
    actions: list[np.ndarray] = []
    # Drawn in place: frames that are gathered first and stacked then take longer to copy than to draw.
    drawn, draw = range(0, num_steps + 1, draw_every) if draw_every else range(0), shared_renderer()
    frames = np.empty((len(drawn), size, size, 3), np.uint8)
    for step in range(num_steps + 1):
        contacts = world.contacts()
        if step in drawn:
            draw(world.state(), contacts, out=frames[step // draw_every])
        rows.append({**recorded_columns(state, contacts), **{name: values[step] for name, values in labels.items()}})
        if step < num_steps:
            actions.append(act(step, state).astype(np.float32))
            world.step(*actions[-1].astype(np.float64))
            state = world.state()
    columns = full_length_episode(rows, actions, [0.0] * num_steps)
    return {"pixels": frames, **columns} if draw_every else columns


def with_small_frames(
    episodes: Iterator[dict[str, np.ndarray]], image_size: int, device: torch.device | str
) -> Iterator[dict[str, np.ndarray]]:
    """The same episodes with frames area-averaged to `image_size` on `device`."""
    for episode in episodes:
        if image_size != geometry.IMAGE_SIZE:
            native = torch.from_numpy(episode["pixels"]).to(device)
            episode["pixels"] = area_downsample(native, image_size).cpu().numpy()
        yield episode
