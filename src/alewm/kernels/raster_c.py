"""Frames of a triangle scene in C (`raster.c`), shared among threads frame by frame.

The bytes of a frame depend on the scene and the frame's poses alone: not on the batch, the threads or the processor.
"""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from alewm.errors import InputError
from alewm.kernels.compiled import NativeUnavailableError, load_library
from alewm.kernels.raster import LIGHT_NUMBERS, TriangleScene
from alewm.shapes import Float, UInt8

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


def why_not() -> str | None:
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
            list(_threads(parts, os.getpid()).map(run, edges[:-1], edges[1:]))
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


@cache
def _threads(num_threads: int, process: int) -> ThreadPoolExecutor:
    """A pool of this process's own: a forked child must not wait for its parent's threads."""
    del process
    return ThreadPoolExecutor(num_threads, thread_name_prefix="alewm-raster")
