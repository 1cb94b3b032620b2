"""Frames of a triangle scene on a GPU, all frames of a batch at once; the kernels are in `raster_kernels`.

`alewm-lab bench drawing` times it for several block sizes, cuts and batches (docs/drawing.md has figures of an H200);
`bench check` compares it with MuJoCo's frames.
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
_TILE_WIDTH = 8


@dataclass(frozen=True)
class Blocks:
    """Sizes that change the speed and no frame."""

    triangles: int = 128
    """Triangles per program."""
    pixels: int = 32
    """Pixels per tile, `_TILE_WIDTH` of them in a row: a tile without triangles costs next to nothing."""
    longest_edge: float = 0.024
    """Metres: longer triangles are cut, so that no program waits for one that covers much more than the others."""
    filled: int = 256
    """Pixels per program where only planes are drawn."""
    casting: int = 32
    """Triangles per program that draws the shadow map, of which each takes as long as the one with most texels."""

    def __post_init__(self) -> None:
        counts = (self.triangles, self.pixels, self.filled, self.casting)
        if any(count < 1 or count & (count - 1) for count in counts):
            raise InputError(f"Block sizes are powers of two, got {counts}.")
        if self.pixels < _TILE_WIDTH:
            raise InputError(f"A tile has at least {_TILE_WIDTH} pixels, one row; got {self.pixels}.")
        if not self.longest_edge > 0:
            raise InputError(f"The longest edge of a triangle must be positive, got {self.longest_edge}.")


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
        self._arrays |= {name: self._on_device(array) for name, array in vars(_compared_by_planes(scene)).items()}
        views = ["camera", "mirrored_camera", "caster"] if scene.has_mirror else ["camera", "caster"]
        self._views = self._on_device(np.stack([getattr(scene, name) for name in views])).view(-1, 3, 4)
        self._eyes = self._on_device(np.stack((scene.eye, scene.mirrored_eye)))
        self._casting = min(blocks.casting, blocks.triangles)
        self._tile_rows = triton.cdiv(scene.size, blocks.pixels // _TILE_WIDTH)
        self._tile_columns = triton.cdiv(scene.size, _TILE_WIDTH)

    @property
    def frames_at_once(self) -> int:
        """As many as fit into the memory that buffers may take."""
        each = sum(math.prod(shape) * dtype.itemsize for shape, dtype, _ in self._buffers.values())
        return max(1, _MOST_BYTES // each)

    @property
    def _buffers(self) -> dict[str, tuple[tuple[int, ...], torch.dtype, bool]]:
        """Shapes and types that kernels need for each frame, and which begin as zeros."""
        size, side, num_samples = self.scene.size, self._shadow_side, self.scene.size**2 * 4
        return {
            "nearest": ((num_samples,), torch.int64, True),
            "touched": ((self._tile_rows * self._tile_columns,), torch.uint8, True),
            "queries": ((num_samples if side else 0,), torch.int64, False),
            "asked": ((self._arrays["plane_asked"].numel() if side else 0,), torch.int32, True),
            "shadow_map": ((side, side), torch.int32, False),  # `ask` empties the texels that will be compared
            "plane_heights": ((self._arrays["plane_texels"].numel(),), torch.int32, True),
            "out": ((size, size, 3), torch.uint8, False),
        }

    @property
    def _shadow_side(self) -> int:
        return self.scene.shadow_size if self.scene.has_caster else 0

    def draw(self, poses: Float[np.ndarray, "F G 12"]) -> UInt8[Tensor, "F Y X 3"]:
        """Frames with the geoms at `poses` (geom to world), on the device."""
        if poses.ndim != 3 or poses.shape[1:] != (self.scene.num_geoms, 12):
            raise InputError(f"Poses have the shape (frames, {self.scene.num_geoms}, 12), got {poses.shape}.")
        if not len(self.scene.triangles):  # there are no corners that kernels could read
            return self._arrays["lit"].flip(0).expand(len(poses), -1, -1, -1).contiguous()
        moved = torch.from_numpy(np.ascontiguousarray(poses, np.float32)).to(self.device)
        parts = [self._draw(part) for part in torch.split(moved, self.frames_at_once)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _draw(self, poses: Float[Tensor, "F G 12"]) -> UInt8[Tensor, "F Y X 3"]:
        scene, blocks, size, side = self.scene, self.blocks, self.scene.size, self._shadow_side
        made = {
            name: (torch.zeros if is_zero else torch.empty)(len(poses), *shape, dtype=dtype, device=self.device)
            for name, (shape, dtype, is_zero) in self._buffers.items()
        }
        arrays, num_geoms = self._arrays, scene.num_geoms
        blocks_of_triangles = len(self._whole) // blocks.triangles
        parts = (self._parts, len(self._whole), self._whole, self._block_geom)
        corners = [arrays[name] for name in ("vertices", "triangles", "vertex_geom")]
        planes = [arrays[name] for name in ("lit", "dark", "plane_compared", "plane_slot")]
        shadow = (scene.caster_near, scene.caster_far, scene.caster_focal)
        views = self._seen_from_all(poses)
        tiles = {
            "WIDE": _TILE_WIDTH,
            "HIGH": blocks.pixels // _TILE_WIDTH,
            "COLUMNS": self._tile_columns,
            "TILES": self._tile_rows * self._tile_columns,
        }
        shadows = {"WORDS": triton.cdiv(side, 8), "NUM_WORDS": made["asked"].shape[1]}
        num_slots, warps_of_tiles = made["plane_heights"].shape[1], _warps(4 * blocks.pixels)
        kernels.cover[(blocks_of_triangles, len(poses), len(views) - 1)](
            *parts, views, num_geoms, arrays["plane_depth"], made["nearest"], made["touched"], scene.focal, scene.near,
            SIZE=size, BLOCK=blocks.triangles, num_warps=_warps(blocks.triangles), **tiles,
        )  # fmt: skip
        if scene.has_caster:
            kernels.ask[(self._tile_rows, len(poses))](
                made["nearest"], made["touched"], made["queries"], made["asked"], made["shadow_map"], *corners, poses,
                views, num_geoms, arrays["caster"], scene.focal, scene.near, *shadow, IS_SPOT=scene.caster_is_spot,
                SIZE=size, SHADOW=side, num_warps=warps_of_tiles, **shadows, **tiles,
            )  # fmt: skip
            kernels.cast[(len(self._whole) // self._casting, len(poses))](
                *parts, views[-1], num_geoms, arrays["plane_asked"], arrays["plane_slots"], made["plane_heights"],
                made["asked"], made["shadow_map"], *shadow, IS_SPOT=scene.caster_is_spot, SIZE=side,
                NUM_SLOTS=num_slots, BLOCK=self._casting, PARTS=blocks.triangles // self._casting,
                num_warps=_warps(self._casting), **shadows,
            )  # fmt: skip
        kernels.fill[(triton.cdiv(size * size, blocks.filled), len(poses))](
            made["out"], *planes, made["plane_heights"], HAS_CASTER=scene.has_caster, NUM_SLOTS=num_slots, SIZE=size,
            BLOCK=blocks.filled, num_warps=_warps(blocks.filled),
        )  # fmt: skip
        kernels.resolve[(self._tile_rows, len(poses))](
            made["nearest"], made["touched"], made["queries"], made["shadow_map"], made["out"], *planes,
            made["plane_heights"], arrays["plane_points"], *corners, arrays["normals"], poses, views, num_geoms,
            arrays["materials"], arrays["lights"], self._eyes, scene.reflectance, scene.focal, scene.near,
            NUM_LIGHTS=len(scene.lights), HAS_CASTER=scene.has_caster, NUM_SLOTS=num_slots, SIZE=size, SHADOW=side,
            num_warps=warps_of_tiles, **tiles,
        )  # fmt: skip
        return made["out"]

    def _seen_from_all(self, poses: Float[Tensor, "F G 12"]) -> Float[Tensor, "views F G 12"]:
        """Geom to the coordinates of the camera, of its mirrored twin if there is one, and of the caster."""
        views, geom = self._views[:, None, None], poses.view(*poses.shape[:2], 3, 4)
        # Written out: a product in TF32 would move corners by pixels.
        moved: Tensor = (views[..., :3, None] * geom[:, :, None]).sum(-2)
        moved[..., 3] += views[..., 3]
        return moved.flatten(-2).contiguous()

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(array, order="C")).to(self.device)


@dataclass(frozen=True)
class _ComparedByPlanes:
    """What the planes' pixels compare with the shadow map, the same in every frame."""

    plane_compared: Float[np.ndarray, " pixels"]
    """Depths, infinite where there is no plane: nothing is above it."""
    plane_slot: Int[np.ndarray, " pixels"]
    """Which of `plane_texels`."""
    plane_texels: Int[np.ndarray, " slots"]
    plane_asked: Int[np.ndarray, " words"]
    """Bits of these texels."""
    plane_slots: Int[np.ndarray, " texels"]
    """The slot of each texel, 0 for others."""


def _compared_by_planes(scene: TriangleScene) -> _ComparedByPlanes:
    """In float32 and in the order of `ask`'s operations."""
    side = scene.shadow_size
    near, far, focal = (np.float32(x) for x in (scene.caster_near, scene.caster_far, scene.caster_focal))
    px, py, pz, kind = scene.plane_points.astype(np.float32).reshape(-1, 4).T
    rows = scene.caster.astype(np.float32).reshape(3, 4)
    x, y, z = (row[0] * px + row[1] * py + row[2] * pz + row[3] for row in rows)
    distance = np.maximum(-z, near) if scene.caster_is_spot else np.float32(1)
    u, v = focal * x / distance, focal * y / distance
    depth = near * (far - distance) / (distance * (far - near)) if scene.caster_is_spot else (far + z) / (far - near)
    column, row = (np.clip((place * 0.5 + 0.5) * side, 0, side - 1).astype(np.int32) for place in (u, v))
    is_plane = kind > 0
    texels = np.unique((row * side + column)[is_plane])
    texels = texels if len(texels) else np.zeros(1, np.int32)
    slots = np.zeros(side * side, np.int32)
    slots[texels] = np.arange(len(texels))
    above, across = np.divmod(texels, side)
    asked = np.zeros((triton.cdiv(side, 4), triton.cdiv(side, 8)), np.uint32)
    bits = np.uint32(1) << (above % 4 * 8 + across % 8).astype(np.uint32)
    np.bitwise_or.at(asked, (above // 4, across // 8), bits)
    compared = np.where(is_plane, np.maximum(depth, 0), np.float32(np.inf)).astype(np.float32)
    slot = np.where(is_plane, slots[row * side + column], 0).astype(np.int32)
    return _ComparedByPlanes(compared, slot, texels, asked.view(np.int32).ravel(), slots)


def _warps(block: int) -> int:
    """So many that no two threads do the same work in a small block, and no thread that of many in a large one."""
    return min(8, max(1, block // 32))


def _cut_in_blocks(
    scene: TriangleScene, blocks: Blocks
) -> tuple[Float[np.ndarray, "parts 3 3"], Int[np.ndarray, " parts"], Int[np.ndarray, " blocks"]]:
    """Triangles cut to size, those of a geom filling whole blocks in the order of their size.

    Returns parts, the triangle each was cut from (-1 for filling) and the geom of each block.
    """
    parts, whole, geoms = [np.empty((0, 3, 3), np.float32)], [np.empty(0, np.int64)], list[int]()
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
