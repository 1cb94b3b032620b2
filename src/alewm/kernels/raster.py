"""Pictures of triangle scenes as MuJoCo's OpenGL draws them: what a scene is, and its drawing in C (`raster.c`).

What OpenGL does, and every path here repeats:

- Corners are lit (Gouraud), clamped to [0, 1] in each of two passes: first the lights that cast no shadow, then the
  caster. Each pass is rounded to 8 bits, and they are added.
- A pixel has four samples. Each sees the nearest triangle, but a triangle's colour and shadow are computed once per
  pixel, at its centre, extrapolated where the centre is outside the triangle.
- The shadow map is hard: its nearest texel is compared, with a bias that grows with the triangle's slope.
- A mirroring plane adds the mirrored scene, lit by all lights at once and without shadows.

Planes are not triangles here. Two pictures hold them, one lit and one without the caster's light, and every pixel
takes one of the two, according to the shadow at its centre.

The bytes of a frame in C depend on the scene and the frame's poses alone: not on the batch, the threads or the
processor. `tests/helpers/raster_reference.py` draws the same in plain torch and float64, and tests compare the two.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from alewm.errors import InputError
from alewm.kernels.compiled import NativeUnavailableError, load_library, thread_pool
from alewm.shapes import Float, Int, UInt8

SAMPLES = ((0.375, 0.125), (0.875, 0.375), (0.125, 0.625), (0.625, 0.875))
"""Where a pixel's samples are: x to the right and y up from its lower left corner."""

LIGHT_NUMBERS = 19
"""Of each light: 1 if directional, 1 if it casts shadows, cosine of its cut-off (-2 without a cone), exponent,
direction (3), place (3, zero if directional), ambient (3), diffuse (3), specular (3)."""


@dataclass(frozen=True)
class TriangleScene:
    """What all frames share. Matrices are the twelve numbers of [R | t]; images have their bottom row first."""

    vertices: Float[np.ndarray, "V 3"]
    """float32: corners in the frame of their geom, those of a geom together; a corner has one normal."""
    normals: Float[np.ndarray, "V 3"]
    triangles: Int[np.ndarray, "T 3"]
    """int32: three corners each, counter-clockwise seen from outside, those of a geom together."""
    vertex_start: Int[np.ndarray, " starts"]
    """int32 [G + 1]: where each geom's corners begin."""
    triangle_geom: Int[np.ndarray, " T"]
    """int32: the geom of each triangle."""
    materials: Float[np.ndarray, "G 5"]
    """Red, green, blue, specular, shininess (0 to 128)."""
    lights: Float[np.ndarray, "L 19"]
    """`LIGHT_NUMBERS` each; at most one casts shadows."""
    camera: Float[np.ndarray, "12"]
    """World to camera: x right, y up, z towards the viewer."""
    eye: Float[np.ndarray, "3"]
    mirror: Float[np.ndarray, "12"]
    """The reflection in the mirroring plane, in world coordinates."""
    caster: Float[np.ndarray, "12"]
    """World to the coordinates of the light that casts shadows, which looks along -z."""
    plane_depth: Float[np.ndarray, "Y X 4"]
    """1 / distance of the planes at every sample; 0 where there is none."""
    plane_points: Float[np.ndarray, "Y X 4"]
    """Where the ray through a pixel's centre meets a plane, and 0 for none, 1 for a plane, 2 for the mirroring one."""
    lit: UInt8[np.ndarray, "Y X 3"]
    """The planes with all lights."""
    dark: UInt8[np.ndarray, "Y X 3"]
    """The planes without the caster's light."""
    focal: float
    near: float
    """Distance of the nearest visible point; triangles with a nearer corner are not drawn."""
    caster_near: float
    caster_far: float
    caster_focal: float
    """Of the shadow map: 1 / tan of half its angle, or 1 / half its width where the caster is directional."""
    reflectance: float
    shadow_size: int
    """Texels per side of the shadow map."""
    has_caster: bool
    caster_is_spot: bool

    @property
    def size(self) -> int:
        """Pixels per side."""
        return len(self.lit)

    @property
    def num_geoms(self) -> int:
        """How many poses a frame has."""
        return len(self.materials)

    @property
    def has_mirror(self) -> bool:
        """Whether a plane mirrors the triangles."""
        return self.reflectance > 0

    @property
    def mirrored_camera(self) -> Float[np.ndarray, "12"]:
        """World to camera after reflection in the mirroring plane."""
        return composed(self.camera, self.mirror)

    @property
    def mirrored_eye(self) -> Float[np.ndarray, "3"]:
        """The viewer's place behind the mirroring plane."""
        matrix = self.mirror.reshape(3, 4)
        place: np.ndarray = matrix[:, :3] @ self.eye + matrix[:, 3]
        return place


def composed(first: Float[np.ndarray, "12"], second: Float[np.ndarray, "12"]) -> Float[np.ndarray, "12"]:
    """The map that applies `second`, then `first`."""
    a, b = first.reshape(3, 4), second.reshape(3, 4)
    return np.concatenate((a[:, :3] @ b[:, :3], a[:, :3] @ b[:, 3:] + a[:, 3:]), 1).reshape(12)


_SOURCE = Path(__file__).with_name("raster.c")
_FLAGS = ("-ffp-contract=off", "-fno-math-errno")
_LARGEST_SIZE, _LARGEST_MAP = 4096, 16384
_LARGEST_NUMBER = 1e6

_COUNTS = ("num_vertices", "num_triangles", "num_geoms", "num_lights", "size", "shadow_size")
_CHOICES = ("has_caster", "caster_is_spot", "has_mirror")
_ARRAYS = {  # in the order of the source's struct, with their shapes
    "vertices": (np.float32, ("V", 3)),
    "normals": (np.float32, ("V", 3)),
    "triangles": (np.int32, ("T", 3)),
    "vertex_start": (np.int32, ("G+1",)),
    "triangle_geom": (np.int32, ("T",)),
    "materials": (np.float32, ("G", 5)),
    "lights": (np.float32, ("L", LIGHT_NUMBERS)),
    "camera": (np.float32, (12,)),
    "mirrored_camera": (np.float32, (12,)),
    "eye": (np.float32, (3,)),
    "mirrored_eye": (np.float32, (3,)),
    "caster": (np.float32, (12,)),
    "plane_depth": (np.float32, ("n", "n", 4)),
    "plane_points": (np.float32, ("n", "n", 4)),
    "lit": (np.uint8, ("n", "n", 3)),
    "dark": (np.uint8, ("n", "n", 3)),
}
_NUMBERS = ("focal", "near", "caster_near", "caster_far", "caster_focal", "reflectance")


class _Struct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in (*_COUNTS, *_CHOICES)),
        *((name, ctypes.c_void_p) for name in _ARRAYS),
        *((name, ctypes.c_float) for name in _NUMBERS),
    )


def why_no_c_renderer() -> str | None:
    """The reason this machine cannot draw in C, or None."""
    try:
        load_library(_SOURCE, _FLAGS)
    except NativeUnavailableError as error:
        return str(error)
    return None


class CRenderer:
    """Draws batches of one scene, whose arrays are checked here once: the C code trusts them."""

    def __init__(self, scene: TriangleScene, num_threads: int = 1) -> None:
        self.scene, self.num_threads = scene, max(1, num_threads)
        counts = {
            "V": len(scene.vertices),
            "T": len(scene.triangles),
            "G": scene.num_geoms,
            "G+1": scene.num_geoms + 1,
            "L": len(scene.lights),
            "n": scene.size,
        }
        self._arrays = {name: _checked(name, getattr(scene, name), counts) for name in _ARRAYS}
        self._check_indices(counts)
        if not 1 <= scene.size <= _LARGEST_SIZE or not 3 <= scene.shadow_size <= _LARGEST_MAP:
            raise InputError(
                f"Frames have 1 to {_LARGEST_SIZE} pixels per side and shadow maps 3 to {_LARGEST_MAP} texels, "
                f"got {scene.size} and {scene.shadow_size}."
            )
        self._struct = _Struct(
            *(counts[key] for key in ("V", "T", "G", "L", "n")),
            scene.shadow_size,
            *(int(getattr(scene, name)) for name in _CHOICES),
            *(array.ctypes.data for array in self._arrays.values()),
            *(float(getattr(scene, name)) for name in _NUMBERS),
        )

    def draw(self, poses: Float[np.ndarray, "F G 12"]) -> UInt8[np.ndarray, "F Y X 3"]:
        """Frames with the geoms at `poses` (geom to world)."""
        expected = (self.scene.num_geoms, 12)
        if poses.ndim != 3 or poses.shape[1:] != expected:
            raise InputError(f"Poses have the shape (frames, {expected[0]}, 12), got {poses.shape}.")
        poses = np.ascontiguousarray(poses, np.float32)
        if not (np.abs(poses) <= _LARGEST_NUMBER).all():
            raise InputError(f"Poses are finite numbers of at most {_LARGEST_NUMBER:g}.")
        size = self.scene.size
        out = np.empty((len(poses), size, size, 3), np.uint8)
        function = _function()

        def run(first: int, last: int) -> None:
            if function(ctypes.addressof(self._struct), poses.ctypes.data, out.ctypes.data, first, last):
                raise MemoryError("No memory to draw frames in.")

        parts = min(self.num_threads, len(poses))
        if parts <= 1:
            run(0, len(poses))
        else:
            edges = [len(poses) * part // parts for part in range(parts + 1)]
            list(thread_pool(parts, "raster").map(run, edges[:-1], edges[1:]))
        return out

    def _check_indices(self, counts: dict[str, int]) -> None:
        """Refuses indices that point outside of the arrays, and numbers that are none."""
        start, triangles, geom = (self._arrays[name] for name in ("vertex_start", "triangles", "triangle_geom"))
        is_in_order = start[0] == 0 and start[-1] == counts["V"] and (np.diff(start) >= 0).all()
        if not is_in_order or not _within(triangles, counts["V"]) or not _within(geom, counts["G"]):
            raise InputError("The scene's triangles must point to its corners, and corners and triangles to its geoms.")
        numbers = [array for array in self._arrays.values() if array.dtype == np.float32]
        scalars = np.array([getattr(self.scene, name) for name in _NUMBERS])
        if not all((np.abs(array) <= _LARGEST_NUMBER).all() for array in (*numbers, scalars)):
            raise InputError(f"The scene's numbers must be finite and at most {_LARGEST_NUMBER:g}.")
        if not 0 < self.scene.caster_near < self.scene.caster_far or self.scene.near <= 0:
            raise InputError("The scene's nearest distances must be positive, and the farthest beyond them.")


def _within(indices: np.ndarray, count: int) -> bool:
    return len(indices) == 0 or bool(indices.min() >= 0 and indices.max() < count)


def _checked(name: str, array: np.ndarray, counts: dict[str, int]) -> np.ndarray:
    """The array as C reads it, of its own memory: what is checked now must not change later."""
    dtype, sides = _ARRAYS[name]
    expected = tuple(counts[side] if isinstance(side, str) else side for side in sides)
    if array.shape != expected:
        raise InputError(f"The scene's {name} must have the shape {expected}, got {array.shape}.")
    return np.array(array, dtype, order="C")


@cache
def _function() -> Any:
    function = load_library(_SOURCE, _FLAGS).draw_frames
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2
    function.restype = ctypes.c_int
    return function
