"""Pictures of MuJoCo worlds without a screen: one camera and one OpenGL context per model and process.

Import `mujoco` from here rather than directly, and dm_control or OGBench after this: a back end must be chosen before
they look for one.
"""

import atexit
import contextlib
import importlib
import os
from typing import Any

import numpy as np

from alewm.envs import opengl
from alewm.shapes import UInt8

opengl.choose_back_end()
# Mesa brings an LLVM whose symbols everyone sees, and torch's compiler one of its own. Loaded in the other order, the
# process ends in a segmentation fault as soon as torch loads its compiler, which making an optimiser does.
with contextlib.suppress(ImportError):
    importlib.import_module("triton")

import mujoco  # noqa: E402 (reads the choice when it is imported)

__all__ = ["OffscreenCamera", "mujoco"]

_MAX_GEOMS = 1000


class OffscreenCamera:
    """Draws any world of one model from one of its cameras, with a shadow map of `shadow_size` (0 for the model's own).

    The context is made when the first picture is asked for, so that physics needs none, and again in a forked process,
    which cannot use its parent's.
    """

    def __init__(self, model: Any, camera: str, size: int, shadow_size: int = 0) -> None:
        self.model, self.size = model, size
        self.shadow_size = shadow_size or int(model.vis.quality.shadowsize)
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self.id = int(model.camera(camera).id)
        self._camera.fixedcamid = self.id
        self.scene = mujoco.MjvScene(model, _MAX_GEOMS)
        self._options = mujoco.MjvOption()
        self._view = mujoco.MjrRect(0, 0, size, size)
        self._context: Any = None
        self._resources: Any = None
        self._process = -1

    def __call__(self, data: Any) -> UInt8[np.ndarray, "native native 3"]:
        """The picture of the world `data`, with the positions it holds at this moment."""
        if self._process != os.getpid():
            self._open()
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self.model, data, self._options, None, self._camera, everything, self.scene)
        self._context.make_current()
        mujoco.mjr_render(self._view, self.scene, self._resources)
        upside_down = np.empty((self.size, self.size, 3), np.uint8)
        mujoco.mjr_readPixels(upside_down, None, self._view, self._resources)
        return upside_down[::-1].copy()

    def close(self) -> None:
        """Free the context; the next picture creates a new one."""
        if self._process == os.getpid():
            try:
                self._context.make_current()
                self._resources.free()
                self._context.free()
            except Exception:
                # dm_control ends EGL when the interpreter exits, perhaps before us. Then nothing is left to free, and
                # the context's finaliser must not try.
                self._context._context = None
        self._process = -1

    def _open(self) -> None:
        back_end = opengl.choose_back_end()
        if back_end not in opengl.BACK_ENDS:
            raise opengl.cannot_draw("it draws nothing off screen")
        try:
            # Asked for by name: `mujoco.GLContext` is another one if somebody imported MuJoCo before the choice.
            self._context = importlib.import_module(f"mujoco.{back_end}").GLContext(self.size, self.size)
            self._context.make_current()
            self._resources = self._make_resources()
        except Exception as error:  # each back end has exceptions of its own
            raise opengl.cannot_draw(error) from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._resources)
        self._process = os.getpid()
        # Contexts that live until interpreter shutdown print exceptions from their finalisers.
        atexit.register(self.close)

    def _make_resources(self) -> Any:
        """MuJoCo reads the size of the shadow map from the model, which other cameras share."""
        quality = self.model.vis.quality
        own = quality.shadowsize
        try:
            quality.shadowsize = self.shadow_size
            return mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        finally:
            quality.shadowsize = own
