"""Frames of a triangle scene on a GPU, all frames of a batch at once; the kernels are in `raster_kernels`.

`alewm-lab bench drawing` times it for several block sizes, cuts and batches; `bench check` compares it with MuJoCo's
frames. Shadows on demand (`ask`) were tested in Triton's interpreter and compiled for Hopper, not run on a GPU yet.
"""

import math
from dataclasses import dataclass

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
    """Pixels of a triangle's bounding box that are looked at side by side; 1, since a small triangle covers few."""
    cast: int = 1
    """Words of 32 texels of its box on the shadow map, likewise; 1, since few texels of a word are asked for."""


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
        each = sum(math.prod(shape) * dtype.itemsize for shape, dtype, _ in self._buffers.values())
        return max(1, _MOST_BYTES // each)

    @property
    def _buffers(self) -> dict[str, tuple[tuple[int, ...], torch.dtype, bool]]:
        """Shapes and types that kernels need for each frame, and which begin as zeros."""
        scene, size = self.scene, self.scene.size
        mirror, side = (size if scene.has_mirror else 0), self._shadow_side
        return {
            "nearest": ((size, size, 4), torch.int64, True),
            "added": ((mirror, mirror, 4, 3), torch.float32, False),
            "queries": ((size, size, 5) if side else (0,), torch.int64, False),
            "asked": ((side, triton.cdiv(side, 32)), torch.int32, True),
            "shadow_map": ((side, side), torch.int32, False),  # `ask` empties the texels that will be compared
            "out": ((size, size, 3), torch.uint8, False),
        }

    @property
    def _shadow_side(self) -> int:
        return self.scene.shadow_size if self.scene.has_caster else 0

    def draw(self, poses: Float[np.ndarray, "F G 12"]) -> UInt8[Tensor, "F Y X 3"]:
        """Frames with the geoms at `poses` (geom to world), on the device."""
        if poses.ndim != 3 or poses.shape[1:] != (self.scene.num_geoms, 12):
            raise InputError(f"Poses have the shape (frames, {self.scene.num_geoms}, 12), got {poses.shape}.")
        moved = torch.from_numpy(np.ascontiguousarray(poses, np.float32)).to(self.device)
        return torch.cat([self._draw(part) for part in torch.split(moved, self.frames_at_once)])

    def _draw(self, poses: Float[Tensor, "F G 12"]) -> UInt8[Tensor, "F Y X 3"]:
        scene, blocks, size, side = self.scene, self.blocks, self.scene.size, self._shadow_side
        made = {
            name: (torch.zeros if is_zero else torch.empty)(len(poses), *shape, dtype=dtype, device=self.device)
            for name, (shape, dtype, is_zero) in self._buffers.items()
        }
        arrays, words = self._arrays, made["asked"].shape[-1]
        triangles = (len(self._whole) // blocks.triangles, len(poses))
        pixels = (triton.cdiv(size * size, blocks.pixels), len(poses))
        parts = (self._parts, len(self._whole), self._whole, self._block_geom)
        shadow = (scene.caster_near, scene.caster_far, scene.caster_focal)
        # The mirrored triangles come first: the camera's pass adds them to the planes.
        for is_mirrored in (True, False) if scene.has_mirror else (False,):
            views = self._seen_from("mirrored_camera" if is_mirrored else "camera", poses)
            kernels.cover[triangles](
                *parts, views, scene.num_geoms, made["nearest"], scene.focal, scene.near, IS_MIRRORED=is_mirrored,
                SIZE=size, BLOCK=blocks.triangles, AT_ONCE=blocks.covered, num_warps=_warps(blocks.triangles),
            )  # fmt: skip
            if scene.has_caster and not is_mirrored:  # reflections are drawn without shadows
                kernels.ask[pixels](
                    made["nearest"], made["queries"], made["asked"], made["shadow_map"], arrays["plane_points"],
                    arrays["plane_depth"], arrays["vertices"], arrays["triangles"], arrays["vertex_geom"], poses, views,
                    scene.num_geoms, arrays["caster"], scene.focal, scene.near, *shadow,
                    IS_SPOT=scene.caster_is_spot, SIZE=size, SHADOW=side, WORDS=words, BLOCK=blocks.pixels,
                    num_warps=_warps(blocks.pixels),
                )  # fmt: skip
                kernels.cast[triangles](
                    *parts, self._seen_from("caster", poses), scene.num_geoms, made["asked"], made["shadow_map"],
                    *shadow, IS_SPOT=scene.caster_is_spot, SIZE=side, WORDS=words, BLOCK=blocks.triangles,
                    AT_ONCE=blocks.cast, num_warps=_warps(blocks.triangles),
                )  # fmt: skip
            kernels.resolve[pixels](
                made["nearest"], made["queries"], made["shadow_map"], made["out"], made["added"], arrays["lit"],
                arrays["dark"], arrays["plane_points"], arrays["plane_depth"], arrays["vertices"], arrays["normals"],
                arrays["triangles"], arrays["vertex_geom"], poses, views, scene.num_geoms, arrays["materials"],
                arrays["lights"], self._eyes[is_mirrored], scene.reflectance if is_mirrored else 1.0, scene.focal,
                scene.near, NUM_LIGHTS=len(scene.lights), HAS_CASTER=scene.has_caster, IS_MIRRORED=is_mirrored,
                HAS_MIRROR=scene.has_mirror, SIZE=size, SHADOW=side, BLOCK=blocks.pixels,
                num_warps=_warps(blocks.pixels),
            )  # fmt: skip
        return made["out"]

    def _seen_from(self, name: str, poses: Float[Tensor, "F G 12"]) -> Float[Tensor, "F G 12"]:
        """Geom to the coordinates of a camera or of the caster."""
        view, geom = self._views[name], poses.view(*poses.shape[:2], 3, 4)
        # Written out: a product in TF32 would move corners by pixels.
        moved: Tensor = (view[:, :3, None] * geom[:, :, None]).sum(-2)
        moved[..., 3] += view[:, 3]
        return moved.reshape(poses.shape).contiguous()

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(array, order="C")).to(self.device)


def _warps(block: int) -> int:
    """So many that no two threads do the same work in a small block, and no thread that of many in a large one."""
    return min(8, max(1, block // 32))


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
