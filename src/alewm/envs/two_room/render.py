"""Two-Room's image: a fixed black and white arena, and one soft red dot blended onto it.

The definition. With p = (px, py) the dot's position and s = 7,

    a(x, y) = exp(-((x - px)² + (y - py)²) / 2s²), divided by its largest value over the pixels, as float32,
    pixel   = old · (1 - a) + (255, 0, 0) · a, in float32, truncated to uint8.

The computation gives the same bytes from a small patch around the dot, because

- the division cancels the dot's sub-pixel offset. With c the nearest pixel, f = p - c and j the offset from c, one axis
  contributes exp((2jf - j²) / 2s²), which is exactly 1 at j = 0, where the maximum over the pixels lies;
- that factor is a tabulated exp(-j² / 2s²) times exp(jf / s²), a short Taylor polynomial since |f| ≤ 1/2. Its float64
  products and sums round identically everywhere, which exp itself does not: library exponentials differ between
  devices, and on one CPU between the vectorised part of an array and its tail;
- a pixel keeps its old value when 1 - a rounds to 1, that is when a ≤ 2⁻²⁵. Down to there a dot on white shows,
  because truncation turns 254.99998 into 254. So it reaches |2jf - j²| < 2s² · 25 ln 2, about 1,698: j = 41 for every
  f, never 42. `PATCH_RADIUS` is that, and a test draws the whole image to compare.
"""

import math

import torch

from alewm.envs.two_room import physics
from alewm.resize import area_average, area_weights, checked_image_size, granule
from alewm.shapes import Float, Int, Tensor, UInt8

PATCH_RADIUS = 41
"""How far from its nearest pixel the dot can change an image, in pixels."""

_TWO_VARIANCES = 2 * physics.DOT_RADIUS**2
_TAYLOR_DEGREE = 14  # |jf / s²| ≤ 0.42 inside the patch radius: the remainder is below 1e-17
_FRAMES_AT_ONCE = {"cpu": 32}  # what the processor's cache holds; the chunk never changes a frame
_FRAMES_AT_ONCE_ELSEWHERE = 1024  # bounds the memory of a GPU


def background_levels() -> UInt8[Tensor, "Y X"]:
    """The arena without a dot: 255 where it is white, 0 on the wall and the frame (all three channels are equal)."""
    size = physics.IMAGE_SIZE
    levels = torch.full((size, size), 255, dtype=torch.uint8)
    levels[:, physics.WALL_FIRST : physics.WALL_LAST + 1] = 0
    levels[physics.DOOR_FIRST : physics.DOOR_LAST + 1, physics.WALL_FIRST : physics.WALL_LAST + 1] = 255
    for first in (physics.FRAME_FIRST, size - 1 - physics.FRAME_LAST):
        last = first + physics.FRAME_LAST - physics.FRAME_FIRST
        levels[first : last + 1] = 0
        levels[:, first : last + 1] = 0
    return levels


class TwoRoomRenderer:
    """Draws dots at positions, on one device and at one image size."""

    def __init__(self, image_size: int = physics.IMAGE_SIZE, device: torch.device | str = "cpu") -> None:
        native = physics.IMAGE_SIZE
        self.image_size = checked_image_size(image_size, native)
        self.device = torch.device(device)
        # Patches start at whole granules, so that a patch of native pixels becomes a patch of whole small ones.
        self._granule, self._small_granule = granule(native, image_size)
        reach = 2 * PATCH_RADIUS + self._granule
        self._patch_size = min(native, math.ceil(reach / self._granule) * self._granule)

        levels = background_levels()
        self._windows = (
            levels.to(self.device, torch.float32).unfold(0, self._patch_size, 1).unfold(1, self._patch_size, 1)
        )
        self._gaussian = torch.tensor(
            [math.exp(-j * j / _TWO_VARIANCES) for j in range(native)], dtype=torch.float64, device=self.device
        )
        self._offsets = torch.arange(self._patch_size, dtype=torch.float64, device=self.device)
        self._weights: Tensor | None = None
        background = levels
        if image_size != native:
            background = area_average(levels, area_weights(native, self._granule, self._small_granule))
            self._weights = area_weights(self._patch_size, self._granule, self._small_granule).to(self.device)
        self._background = background[..., None].expand(-1, -1, 3).contiguous().to(self.device)

    def __call__(self, positions: Float[Tensor, "B 2"]) -> UInt8[Tensor, "B Y X 3"]:
        """One frame for each position, on this renderer's device."""
        frames = self._background.new_empty(len(positions), self.image_size, self.image_size, 3)
        chunk = _FRAMES_AT_ONCE.get(self.device.type, _FRAMES_AT_ONCE_ELSEWHERE)
        for start in range(0, len(positions), chunk):
            self._draw(positions[start : start + chunk], frames[start : start + chunk])
        return frames

    def _draw(self, positions: Float[Tensor, "B 2"], frames: UInt8[Tensor, "B Y X 3"]) -> None:
        starts, factors = self._axis_factors(positions.to(self.device, torch.float64))
        column, row = starts.unbind(-1)
        alpha = (factors[:, 1, :, None] * factors[:, 0, None, :]).float()
        # The arena is grey and the dot's green and blue are 0, so two channels are enough.
        kept = (1 - alpha).mul_(self._windows[row, column])
        red = alpha.mul_(255).add_(kept).to(torch.uint8)
        other = kept.to(torch.uint8)
        if self._weights is not None:
            red, other = area_average(red, self._weights), area_average(other, self._weights)
            column, row = (start // self._granule * self._small_granule for start in (column, row))
        frames.copy_(self._background)
        paste = paste_by_slices if self.device.type == "cpu" else paste_by_index
        paste(frames, torch.stack((red, other, other), -1), row, column)

    def _axis_factors(self, positions: Float[Tensor, "B 2"]) -> tuple[Int[Tensor, "B 2"], Float[Tensor, "B 2 patch"]]:
        """Where each patch starts along x and y, and exp((2jf - j²) / 2s²) along its pixels."""
        nearest = positions.round()
        starts = (nearest - PATCH_RADIUS).clamp(0, physics.IMAGE_SIZE - self._patch_size)
        starts = (starts / self._granule).floor() * self._granule
        j = (starts - nearest)[..., None] + self._offsets
        exponent = j * (positions - nearest)[..., None] / (_TWO_VARIANCES / 2)
        factors = torch.full_like(exponent, 1 / math.factorial(_TAYLOR_DEGREE))
        for degree in range(_TAYLOR_DEGREE - 1, -1, -1):
            factors.mul_(exponent).add_(1 / math.factorial(degree))
        return starts.long(), factors.mul_(self._gaussian[j.abs().long()])


def paste_by_slices(
    frames: UInt8[Tensor, "B Y X 3"],
    patches: UInt8[Tensor, "B patch patch 3"],
    row: Int[Tensor, "B"],
    column: Int[Tensor, "B"],
) -> None:
    """Write each patch into its frame at (row, column); on a CPU ten times faster than by index."""
    size = patches.shape[1]
    for frame, patch, y, x in zip(frames.numpy(), patches.numpy(), row.tolist(), column.tolist(), strict=True):
        frame[y : y + size, x : x + size] = patch


def paste_by_index(
    frames: UInt8[Tensor, "B Y X 3"],
    patches: UInt8[Tensor, "B patch patch 3"],
    row: Int[Tensor, "B"],
    column: Int[Tensor, "B"],
) -> None:
    """Write each patch into its frame at (row, column), in one launch and without waiting for a GPU."""
    along = torch.arange(patches.shape[1], device=frames.device)
    batch = torch.arange(len(frames), device=frames.device)[:, None, None]
    frames[batch, (row[:, None] + along)[:, :, None], (column[:, None] + along)[:, None, :]] = patches
