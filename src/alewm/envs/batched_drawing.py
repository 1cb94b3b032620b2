"""Batches of MuJoCo pictures by our own rasteriser (`alewm.kernels.raster`), built from any compiled model it can draw.

MuJoCo draws the planes of the scene once, lit and without the light that casts shadows. Everything else becomes
triangles. A model with a feature that the rasteriser lacks is refused by the feature's name (`CannotDrawError`).
"""

import importlib.util
import math
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch

from alewm.envs.offscreen import OffscreenCamera, mujoco
from alewm.envs.simulated import Drawing, DrawingChoice, EachByItself, Painter, Simulator
from alewm.envs.tessellation import can_tessellate, triangles
from alewm.errors import InputError
from alewm.kernels import raster
from alewm.kernels.raster import SAMPLES, TriangleScene
from alewm.shapes import Float, Tensor, UInt8

_VISIBLE_GROUPS = 3
"""Groups 0, 1 and 2 of geoms, sites and tendons are drawn unless somebody says otherwise."""
_HIDDEN_GROUP = 5
_DEFAULT_RGBA = (0.5, 0.5, 0.5, 1.0)
"""A geom of this colour takes its material's."""
_NO_CONE = -2.0
_WIDEST_CONE, _WIDEST_MAP = 90.0, 160.0
"""Degrees: OpenGL refuses wider cones and draws none then; MuJoCo's shadow maps are no wider."""


class CannotDrawError(InputError):
    """A feature of the model that the rasteriser does not draw."""

    def __init__(self, feature: str) -> None:
        self.feature = feature
        super().__init__(f"The batched renderer cannot draw {feature}: use MuJoCo's own (--drawing mujoco).")


def triangle_scene(camera: OffscreenCamera) -> tuple[TriangleScene, list[int]]:
    """The scene that `camera` sees, and the geoms whose poses make a frame; CannotDrawError names what is refused."""
    model = camera.model
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    _refuse_features(camera)
    shown = [geom for geom in range(model.ngeom) if _is_shown(model.geom_group[geom], _rgba(model, geom))]
    planes = [geom for geom in shown if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE.value]
    solids = [geom for geom in shown if geom not in planes]
    for geom in solids:
        _refuse_material(model, geom)
    lights, caster = _lights(model, data, camera.id)
    view = _inverse(data.cam_xmat[camera.id], data.cam_xpos[camera.id])
    depth, points, mirror = _planes(model, data, camera, planes)
    lit, dark = _pictures(camera, data, solids, caster)
    extent, visual = model.stat.extent, model.vis.map
    return TriangleScene(
        **triangles(model, solids),
        materials=np.array([_material(model, geom) for geom in solids], np.float32).reshape(-1, 5),
        lights=lights,
        camera=view.astype(np.float32),
        eye=data.cam_xpos[camera.id].astype(np.float32),
        mirror=_reflection(data, mirror).astype(np.float32),
        plane_depth=depth,
        plane_points=points,
        lit=lit,
        dark=dark,
        focal=_focal(model, camera.id),
        near=float(visual.znear * extent),
        caster_near=float(visual.znear * extent),
        caster_far=float(visual.zfar * extent),
        reflectance=0.0 if mirror is None else _reflectance(model, mirror),
        shadow_size=camera.shadow_size,
        has_caster=caster is not None,
        **_caster(model, data, caster),
    ), solids


def poses_of(data: Any, geoms: Sequence[int]) -> Float[np.ndarray, "G 12"]:
    """Where the geoms are in the world `data`: rotation and place as rows of [R | t]."""
    turn = data.geom_xmat[geoms].reshape(-1, 3, 3)
    return np.concatenate((turn, data.geom_xpos[geoms][:, :, None]), 2).reshape(-1, 12).astype(np.float32)


def _refuse_features(camera: OffscreenCamera) -> None:
    """Refuses what concerns the scene as a whole."""
    model, eye = camera.model, camera.id
    joint_wrap = mujoco.mjtWrap.mjWRAP_JOINT.value
    problems = {
        "a camera that moves": model.cam_mode[eye] != mujoco.mjtCamLight.mjCAMLIGHT_FIXED.value
        or not _is_static(model, int(model.cam_bodyid[eye])),
        "an orthographic camera": _is_orthographic(model, eye),
        "a camera with a sensor of its own": bool(model.cam_sensorsize[eye].any()),
        "fog": bool(camera.scene.flags[mujoco.mjtRndFlag.mjRND_FOG.value]),
        "shadows that are switched off": not camera.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW.value],
        f"{model.vis.quality.offsamples} samples per pixel (it has {len(SAMPLES)})": (
            model.vis.quality.offsamples != len(SAMPLES)
        ),
        "skins": model.nskin > 0,
        "flexible bodies": model.nflex > 0,
    }
    for problem, is_there in problems.items():
        if is_there:
            raise CannotDrawError(problem)
    for site in range(model.nsite):
        if _is_shown(model.site_group[site], model.site_rgba[site]):
            raise CannotDrawError(f"the site {model.site(site).name!r}")
    for tendon in range(model.ntendon):
        is_spatial = model.wrap_type[model.tendon_adr[tendon]] != joint_wrap
        if is_spatial and _is_shown(model.tendon_group[tendon], model.tendon_rgba[tendon]):
            raise CannotDrawError(f"the tendon {model.tendon(tendon).name!r}")


def _refuse_material(model: Any, geom: int) -> None:
    name = f"the geom {model.geom(geom).name or geom!r}"
    material = model.geom_matid[geom]
    if not can_tessellate(int(model.geom_type[geom])):
        raise CannotDrawError(f"{name}, a {mujoco.mjtGeom(model.geom_type[geom]).name[7:].lower()}")
    if _rgba(model, geom)[3] != 1:
        raise CannotDrawError(f"{name}, which is transparent")
    if material < 0:
        return
    if (model.mat_texid[material] >= 0).any():
        raise CannotDrawError(f"{name}, which has a texture")
    if model.mat_emission[material] > 0:
        raise CannotDrawError(f"{name}, which glows (emission)")
    if model.mat_reflectance[material] > 0:
        raise CannotDrawError(f"{name}, which mirrors (only a plane may)")


def _is_static(model: Any, body: int) -> bool:
    return bool(model.body_weldid[body] == 0)


def _is_orthographic(model: Any, eye: int) -> bool:
    if hasattr(model, "cam_projection"):
        return bool(model.cam_projection[eye] != mujoco.mjtProjection.mjPROJ_PERSPECTIVE.value)
    return bool(model.cam_orthographic[eye])


def _is_shown(group: Any, rgba: np.ndarray) -> bool:
    return bool(group < _VISIBLE_GROUPS and rgba[3] > 0)


def _rgba(model: Any, geom: int) -> np.ndarray:
    own: np.ndarray = model.geom_rgba[geom]
    material = model.geom_matid[geom]
    return model.mat_rgba[material] if material >= 0 and (own == _DEFAULT_RGBA).all() else own


def _material(model: Any, geom: int) -> Float[np.ndarray, "5"]:
    material = model.geom_matid[geom]
    specular, shininess = (0.5, 0.5) if material < 0 else (model.mat_specular[material], model.mat_shininess[material])
    return np.array([*_rgba(model, geom)[:3], specular, 128 * shininess], np.float32)


def _reflectance(model: Any, geom: int) -> float:
    material = model.geom_matid[geom]
    return 0.0 if material < 0 else float(model.mat_reflectance[material])


def _lights(model: Any, data: Any, eye: int) -> tuple[Float[np.ndarray, "L 19"], int | None]:
    """All lights, the headlight first, and which of the model's casts shadows."""
    rows, casters = [], []
    head = model.vis.headlight
    if head.active:
        forward = -data.cam_xmat[eye].reshape(3, 3)[:, 2]
        rows.append((1, 0, _NO_CONE, 0, *forward, 0, 0, 0, *head.ambient, *head.diffuse, *head.specular))
    directional, spot = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL.value, mujoco.mjtLightType.mjLIGHT_SPOT.value
    for light in np.flatnonzero(model.light_active):
        name = f"the light {model.light(light).name or int(light)!r}"
        kind = model.light_type[light]
        if kind not in (directional, spot):
            raise CannotDrawError(f"{name}, which is neither directional nor a spot")
        is_fixed = model.light_mode[light] == mujoco.mjtCamLight.mjCAMLIGHT_FIXED.value
        if not is_fixed or not _is_static(model, int(model.light_bodyid[light])):
            raise CannotDrawError(f"{name}, which moves")
        if tuple(model.light_attenuation[light]) != (1, 0, 0):
            raise CannotDrawError(f"{name}, which fades with distance")
        if model.light_castshadow[light]:
            casters.append(int(light))
        has_cone = kind == spot and model.light_cutoff[light] <= _WIDEST_CONE
        cone = (math.cos(math.radians(model.light_cutoff[light])), model.light_exponent[light])
        rows.append(
            (
                float(kind == directional),
                float(model.light_castshadow[light]),
                *(cone if has_cone else (_NO_CONE, 0)),
                *data.light_xdir[light],
                *(data.light_xpos[light] if kind == spot else (0, 0, 0)),
                *model.light_ambient[light],
                *model.light_diffuse[light],
                *model.light_specular[light],
            )
        )
    if len(casters) > 1:
        raise CannotDrawError(f"{len(casters)} lights that cast shadows (at most one may)")
    return np.array(rows, np.float32).reshape(-1, 19), casters[0] if casters else None


def _caster(model: Any, data: Any, light: int | None) -> dict[str, Any]:
    """How the shadow map is projected."""
    if light is None:
        return {"caster": np.zeros(12, np.float32), "caster_is_spot": False, "caster_focal": 1.0}
    forward = data.light_xdir[light]
    up = np.array([0.0, 1.0, 0.0]) if abs(forward[1]) < 0.5 else np.array([0.0, 0.0, 1.0])
    up = up - forward * (up @ forward)
    up /= np.linalg.norm(up)
    axes = np.stack((np.cross(forward, up), up, -forward), 1)
    is_spot = bool(model.light_type[light] == mujoco.mjtLightType.mjLIGHT_SPOT.value)
    visual = model.vis.map
    angle = min(2 * float(model.light_cutoff[light]) * visual.shadowscale, _WIDEST_MAP)
    focal = 1 / math.tan(math.radians(angle) / 2) if is_spot else 1 / (visual.shadowclip * model.stat.extent)
    matrix = _inverse(axes, data.light_xpos[light])
    return {"caster": matrix.astype(np.float32), "caster_is_spot": is_spot, "caster_focal": float(focal)}


def _inverse(axes: np.ndarray, origin: np.ndarray) -> Float[np.ndarray, "12"]:
    """World to the frame with these `axes`, as columns, at `origin`."""
    turn = np.asarray(axes, np.float64).reshape(3, 3).T
    return np.concatenate((turn, -turn @ origin[:, None]), 1).reshape(12)


def _focal(model: Any, eye: int) -> float:
    return 1 / math.tan(math.radians(float(model.cam_fovy[eye])) / 2)


def _planes(
    model: Any, data: Any, camera: OffscreenCamera, planes: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, int | None]:
    """`plane_depth` and `plane_points` of a scene, and the plane that mirrors."""
    size, focal = camera.size, _focal(model, camera.id)
    eye, axes = data.cam_xpos[camera.id], data.cam_xmat[camera.id].reshape(3, 3)
    rows, columns = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    depth = np.zeros((size, size, len(SAMPLES) + 1))
    owner = np.full((size, size, len(SAMPLES) + 1), -1)
    places = (*SAMPLES, (0.5, 0.5))
    # Rays whose length along the camera's axis is 1, so that a factor is a distance in the sense of OpenGL.
    rays = (
        np.stack(
            [
                np.stack(
                    ((2 * (columns + x) / size - 1) / focal, (2 * (rows + y) / size - 1) / focal, -1 + 0 * rows), -1
                )
                for x, y in places
            ],
            2,
        )
        @ axes.T
    )
    for plane in planes:
        name = f"the plane {model.geom(plane).name or plane!r}"
        if not _is_static(model, int(model.geom_bodyid[plane])):
            raise CannotDrawError(f"{name}, which moves")
        turn, origin = data.geom_xmat[plane].reshape(3, 3), data.geom_xpos[plane]
        height = (eye - origin) @ turn[:, 2]
        if height <= 0:
            raise CannotDrawError(f"{name}, which is seen from behind")
        falling = -(rays @ turn[:, 2])
        distance = np.where(falling > 1e-12, height / np.maximum(falling, 1e-12), np.inf)
        local = (eye + rays * np.where(np.isfinite(distance), distance, 0)[..., None] - origin) @ turn[:, :2]
        half = np.where(model.geom_size[plane][:2] > 0, model.geom_size[plane][:2], np.inf)
        is_hit = np.isfinite(distance) & (np.abs(local) <= half).all(-1)
        is_nearer = is_hit & (1 / distance > depth)
        depth[is_nearer], owner[is_nearer] = 1 / distance[is_nearer], plane
    mirrors = [plane for plane in planes if _reflectance(model, plane) > 0]
    if len(mirrors) > 1:
        raise CannotDrawError(f"{len(mirrors)} mirroring planes (at most one may)")
    centre_depth, centre_owner = depth[..., -1], owner[..., -1]
    far = np.divide(1, centre_depth, out=np.zeros_like(centre_depth), where=centre_depth > 0)
    kind = (centre_owner >= 0).astype(np.float64) + (centre_owner == mirrors[0] if mirrors else 0)
    points = np.concatenate((eye + rays[:, :, -1] * far[..., None], kind[..., None]), -1)
    points[kind == 0] = 0
    return depth[..., :-1].astype(np.float32), points.astype(np.float32), mirrors[0] if mirrors else None


def _reflection(data: Any, plane: int | None) -> Float[np.ndarray, "12"]:
    """The reflection in a plane, or the identity."""
    if plane is None:
        return np.eye(3, 4).reshape(12)
    normal = data.geom_xmat[plane].reshape(3, 3)[:, 2]
    turn = np.eye(3) - 2 * np.outer(normal, normal)
    offset = 2 * (data.geom_xpos[plane] @ normal) * normal
    return np.concatenate((turn, offset[:, None]), 1).reshape(12)


def _pictures(
    camera: OffscreenCamera, data: Any, solids: Sequence[int], caster: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """MuJoCo's pictures of the planes alone: lit, and without the caster; bottom row first."""
    model = camera.model
    groups, active = model.geom_group.copy(), model.light_active.copy()
    try:
        model.geom_group[list(solids)] = _HIDDEN_GROUP
        lit = camera(data)[::-1].copy()
        if caster is None:
            return lit, lit
        model.light_active[caster] = 0
        return lit, camera(data)[::-1].copy()
    finally:
        model.geom_group[:], model.light_active[:] = groups, active


class BatchedPainter(Painter):
    """Draws the worlds of one camera in batches: on a GPU where Triton works, else in C."""

    def __init__(self, camera: OffscreenCamera) -> None:
        self.scene, self.geoms = triangle_scene(camera)
        self._draw = best_renderer(self.scene)

    def look(self, world: "MujocoSimulator") -> Float[np.ndarray, "G 12"]:
        """Where its geoms are."""
        return poses_of(world.data, self.geoms)

    def paint(self, looks: Sequence[np.ndarray]) -> UInt8[Tensor, "F Y X 3"]:
        """Frames of them all."""
        return self._draw(np.stack(looks))


class MujocoSimulator(Simulator):
    """A world of MuJoCo, `data`, that can be drawn by MuJoCo or in batches."""

    camera: ClassVar[Callable[[int], OffscreenCamera]]
    """Shadow size (0 for the model's own) to the one camera of this process that has it."""

    def __init__(self, data: Any) -> None:
        self.data = data
        super().__init__()

    def draw(self) -> UInt8[np.ndarray, "native native 3"]:
        """MuJoCo's picture."""
        return type(self).camera(0)(self.data)

    @classmethod
    def painter(cls, drawing: Drawing) -> Painter:
        """MuJoCo's camera, or the rasteriser; where that cannot work MuJoCo draws with the same shadow size."""
        camera = cls.camera(drawing.shadow_size)
        if drawing.renderer == "batched":
            reason = why_not_batched(camera)
            if reason is None:
                return _batched_painter(camera, os.getpid())
            print(f"Frames are drawn by MuJoCo, not in batches as the data were: {reason}.", file=sys.stderr)
        return EachByItself(lambda world: camera(world.data))


def resolve_drawing(choice: DrawingChoice, shadow_size: int, camera: OffscreenCamera) -> Drawing:
    """What is drawn with: auto is batched where that works, and MuJoCo elsewhere.

    Batches spell the shadow size out. MuJoCo with its model's own needs no word: that is what files without one mean.
    """
    reason = None if choice == "mujoco" else why_not_batched(camera)
    if choice == "batched" and reason is not None:
        raise InputError(f"Frames cannot be drawn in batches here: {reason}. Use --drawing mujoco.")
    if choice == "mujoco" or reason is not None:
        return Drawing("mujoco", shadow_size)
    return Drawing("batched", camera.shadow_size)


def why_not_batched(camera: OffscreenCamera) -> str | None:
    """The reason that frames of this camera cannot be drawn in batches on this machine, or None."""
    if not triton_works() and (reason := raster.why_no_c_renderer()) is not None:
        return f"there is no GPU with Triton, and {reason}"
    try:
        _batched_painter(camera, os.getpid())
    except CannotDrawError as error:
        return f"the model has {error.feature}"
    return None


@cache
def _batched_painter(camera: OffscreenCamera, process: int) -> BatchedPainter:
    """One per camera: building a scene takes a second. A forked process makes its own, for its threads and its GPU."""
    del process
    return BatchedPainter(camera)


def triton_works() -> bool:
    """Whether there is a GPU that Triton can use."""
    return torch.cuda.is_available() and importlib.util.find_spec("triton") is not None


def best_renderer(scene: TriangleScene) -> Callable[[Float[np.ndarray, "F G 12"]], UInt8[Tensor, "F Y X 3"]]:
    """Poses to frames: on the GPU where there is one, else in C."""
    if triton_works():
        from alewm.kernels.raster_triton import TritonRenderer

        return TritonRenderer(scene, torch.device("cuda")).draw
    renderer = raster.CRenderer(scene, torch.get_num_threads())
    return lambda poses: torch.from_numpy(renderer.draw(poses))
