"""Frames of a triangle scene on a GPU, all frames of a batch at once; the kernels are in `raster_kernels`.

This path has been tested in Triton's interpreter and compiled for Hopper. It has not been run on a GPU:
`alewm-lab bench drawing` times it there, for several block sizes, cuts and batches.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton

from alewm.errors import InputError
from alewm.kernels import raster_kernels as kernels
from alewm.kernels.raster import TriangleScene
from alewm.shapes import Float, Int, Tensor, UInt8

_MOST_BYTES = 8 << 30


@dataclass(frozen=True)
class Blocks:
    """Sizes that change the speed and no frame."""

    triangles: int = 128
    """Triangles per program."""
    pixels: int = 128
    """Pixels per program."""
    longest_edge: float = 0.024
    """Metres: longer triangles are cut, so that no program waits for one that covers much more than the others."""
    covered: int = 1
    """Pixels of a triangle's bounding box that are looked at side by side."""
    cast: int = 1
    """Texels of the shadow map, likewise."""


DEFAULT_BLOCKS = Blocks()


class TritonRenderer:
    """Draws batches of one scene on `device`."""

    def __init__(self, scene: TriangleScene, device: torch.device, blocks: Blocks = DEFAULT_BLOCKS) -> None:
        self.scene, self.device, self.blocks = scene, device, blocks
        parts, whole, geom = _cut_in_blocks(scene, blocks)
        self._parts = self._on_device(parts.reshape(-1, 9).T)
        self._whole, self._block_geom = self._on_device(whole), self._on_device(geom)
        vertex_geom = np.repeat(np.arange(scene.num_geoms, dtype=np.int32), np.diff(scene.vertex_start))
        arrays = ("vertices", "normals", "triangles", "materials", "lights", "caster", "plane_points", "plane_depth")
        self._arrays = {name: self._on_device(getattr(scene, name)) for name in (*arrays, "lit", "dark")}
        self._arrays["vertex_geom"] = self._on_device(vertex_geom)
        self._views = {
            name: self._on_device(getattr(scene, name)).view(3, 4) for name in ("camera", "mirrored_camera", "caster")
        }
        self._eyes = [self._on_device(eye) for eye in (scene.eye, scene.mirrored_eye)]

    @property
    def frames_at_once(self) -> int:
        """As many as fit into the memory that buffers may take."""
        pixels = self.scene.size**2
        each = pixels * (4 * 8 + 3 + (48 if self.scene.has_mirror else 0)) + 4 * self.scene.shadow_size**2
        return max(1, _MOST_BYTES // each)

    def draw(self, poses: Float[np.ndarray, "F G 12"]) -> UInt8[Tensor, "F Y X 3"]:
        """Frames with the geoms at `poses` (geom to world), on the device."""
        if poses.ndim != 3 or poses.shape[1:] != (self.scene.num_geoms, 12):
            raise InputError(f"Poses have the shape (frames, {self.scene.num_geoms}, 12), got {poses.shape}.")
        moved = torch.from_numpy(np.ascontiguousarray(poses, np.float32)).to(self.device)
        return torch.cat([self._draw(part) for part in torch.split(moved, self.frames_at_once)])

    def _draw(self, poses: Float[Tensor, "F G 12"]) -> UInt8[Tensor, "F Y X 3"]:
        scene, blocks, count, size = self.scene, self.blocks, len(poses), self.scene.size
        new: dict[str, Any] = {"device": self.device}
        nearest = torch.zeros(count, size, size, 4, dtype=torch.int64, **new)
        added = torch.zeros(count if scene.has_mirror else 0, size, size, 4, 3, **new)
        side = scene.shadow_size if scene.has_caster else 1
        shadow_map = torch.zeros(count, side, side, dtype=torch.int32, **new)
        out = torch.empty(count, size, size, 3, dtype=torch.uint8, **new)
        triangles = (len(self._whole) // blocks.triangles, count)
        pixels = (triton.cdiv(size * size, blocks.pixels), count)
        parts = (self._parts, len(self._whole), self._whole, self._block_geom)
        shadow = (scene.caster_near, scene.caster_far, scene.caster_focal)
        if scene.has_caster:
            views = self._seen_from("caster", poses)
            kernels.cast[triangles](
                *parts, views, scene.num_geoms, shadow_map, *shadow,
                IS_SPOT=scene.caster_is_spot, SIZE=side, BLOCK=blocks.triangles, AT_ONCE=blocks.cast,
            )  # fmt: skip
        passes = [("mirrored_camera", True), ("camera", False)] if scene.has_mirror else [("camera", False)]
        for camera, is_mirrored in passes:
            views = self._seen_from(camera, poses)
            kernels.cover[triangles](
                *parts, views, scene.num_geoms, nearest, scene.focal, scene.near,
                IS_MIRRORED=is_mirrored, SIZE=size, BLOCK=blocks.triangles, AT_ONCE=blocks.covered,
            )  # fmt: skip
            arrays = self._arrays
            kernels.resolve[pixels](
                nearest, shadow_map, out, added, arrays["lit"], arrays["dark"], arrays["plane_points"],
                arrays["plane_depth"], arrays["vertices"], arrays["normals"], arrays["triangles"],
                arrays["vertex_geom"], poses, views, scene.num_geoms, arrays["materials"], arrays["lights"],
                arrays["caster"], self._eyes[is_mirrored], scene.reflectance if is_mirrored else 1.0, scene.focal,
                scene.near, *shadow, NUM_LIGHTS=len(scene.lights), HAS_CASTER=scene.has_caster,
                IS_SPOT=scene.caster_is_spot, IS_MIRRORED=is_mirrored, HAS_MIRROR=scene.has_mirror, SIZE=size,
                SHADOW=side, BLOCK=blocks.pixels,
            )  # fmt: skip
        return out

    def _seen_from(self, name: str, poses: Float[Tensor, "F G 12"]) -> Float[Tensor, "F G 12"]:
        """Geom to the coordinates of a camera or of the caster."""
        view, geom = self._views[name], poses.view(*poses.shape[:2], 3, 4)
        # Written out: a product in TF32 would move corners by pixels.
        moved: Tensor = (view[:, :3, None] * geom[:, :, None]).sum(-2)
        moved[..., 3] += view[:, 3]
        return moved.reshape(poses.shape).contiguous()

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(array, order="C")).to(self.device)


def _cut_in_blocks(
    scene: TriangleScene, blocks: Blocks
) -> tuple[Float[np.ndarray, "parts 3 3"], Int[np.ndarray, " parts"], Int[np.ndarray, " blocks"]]:
    """Triangles cut to size, those of a geom filling whole blocks in the order of their size.

    Returns parts, the triangle each was cut from (-1 for filling) and the geom of each block.
    """
    parts, whole, geoms = [], [], []
    for geom in range(scene.num_geoms):
        mine = np.flatnonzero(scene.triangle_geom == geom)
        corners, origin = _cut(scene.vertices[scene.triangles[mine]], blocks.longest_edge)
        order = np.argsort(-np.ptp(corners, axis=1).max(-1), kind="stable")
        padding = -len(order) % blocks.triangles
        parts.append(np.concatenate((corners[order], np.zeros((padding, 3, 3), np.float32))))
        whole.append(np.concatenate((mine[origin[order]], np.full(padding, -1))))
        geoms += [geom] * ((len(order) + padding) // blocks.triangles)
    return np.concatenate(parts), np.concatenate(whole).astype(np.int32), np.array(geoms, np.int32)


def _cut(corners: Float[np.ndarray, "T 3 3"], longest: float) -> tuple[np.ndarray, np.ndarray]:
    """Triangles halved at their longest edge until none is longer than `longest`, and which one each comes from."""
    origin = np.arange(len(corners))
    done, origins = [np.empty((0, 3, 3), np.float32)], [np.empty(0, np.int64)]
    while len(corners):
        edges = np.linalg.norm(np.roll(corners, -1, 1) - corners, axis=-1)
        is_short = edges.max(1) <= longest
        done.append(corners[is_short])
        origins.append(origin[is_short])
        corners, origin, first = corners[~is_short], origin[~is_short], edges[~is_short].argmax(1)
        rows = np.arange(len(corners))
        a, b, c = (corners[rows, (first + step) % 3] for step in range(3))
        middle = (a + b) / 2
        corners = np.concatenate((np.stack((a, middle, c), 1), np.stack((middle, b, c), 1)))
        origin = np.concatenate((origin, origin))
    return np.concatenate(done).astype(np.float32), np.concatenate(origins)
