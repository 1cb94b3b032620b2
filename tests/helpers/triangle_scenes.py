"""Small random scenes of triangles: a floor, a few boxes with soft corners, lights of both kinds, perhaps a mirror."""

import numpy as np

from alewm.kernels.raster import SAMPLES, TriangleScene

_BOX = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float32)
_FACES = [(0, 1, 3), (0, 3, 2), (4, 6, 7), (4, 7, 5), (0, 4, 5), (0, 5, 1), (2, 3, 7), (2, 7, 6), (0, 2, 6), (0, 6, 4)]
_FACES += [(1, 5, 7), (1, 7, 3)]


def random_scene(
    seed: int,
    *,
    size: int = 24,
    shadow_size: int = 64,
    num_geoms: int = 3,
    spot: bool = True,
    mirror: bool = True,
    caster: bool = True,
) -> TriangleScene:
    """A camera at (0, 0, 3) looks down on a floor at 0 from -1 to 1; shadows fall straight down."""
    random = np.random.default_rng(seed)
    materials = np.concatenate((random.uniform(0, 1, (num_geoms, 4)), np.full((num_geoms, 1), 32)), 1)
    half = random.uniform(0.1, 0.4, (num_geoms, 1, 3)).astype(np.float32)
    focal = 2.0
    rows, columns = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    places = np.stack([np.stack((columns + x, rows + y), -1) for x, y in (*SAMPLES, (0.5, 0.5))], 2)
    floor = 3 * (2 * places / size - 1) / focal
    is_floor = np.asarray((np.abs(floor) <= 1).all(-1))
    kind = is_floor[..., -1:] * (2.0 if mirror else 1.0)
    points = np.concatenate((floor[:, :, -1] * is_floor[..., -1:], 0 * kind, kind), -1)
    lit = random.integers(60, 200, (size, size, 3)).astype(np.uint8)
    flip = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, 0] if mirror else [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]
    colours = random.uniform(0, 1, (2, 9))
    light = [0.0 if spot else 1.0, float(caster), 0.5 if spot else -2.0, 2.0 if spot else 0.0, 0, 0, -1]
    lights = [
        [1, 0, -2, 0, 0, 0, -1, 0, 0, 0, *(colours[0] * 0.5)],
        [*light, 0, 0, 2.0 if spot else 0.0, *colours[1]],
    ]
    return TriangleScene(
        vertices=(_BOX * half).reshape(-1, 3),
        normals=np.tile(_BOX / np.sqrt(3).astype(np.float32), (num_geoms, 1)),
        triangles=(np.array(_FACES) + 8 * np.arange(num_geoms)[:, None, None]).reshape(-1, 3).astype(np.int32),
        vertex_start=8 * np.arange(num_geoms + 1, dtype=np.int32),
        triangle_geom=np.repeat(np.arange(num_geoms, dtype=np.int32), len(_FACES)),
        materials=materials.astype(np.float32),
        lights=np.array(lights, np.float32),
        camera=np.array([1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, -3], np.float32),
        eye=np.array([0, 0, 3], np.float32),
        mirror=np.array(flip, np.float32),
        caster=np.array([1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, -2], np.float32),
        plane_depth=(is_floor[..., :-1] / 3).astype(np.float32),
        plane_points=points.astype(np.float32),
        lit=lit,
        dark=lit // 2,
        focal=focal,
        near=0.05,
        caster_near=0.05,
        caster_far=10.0,
        caster_focal=1.2,
        reflectance=0.3 if mirror else 0.0,
        shadow_size=shadow_size,
        has_caster=caster,
        caster_is_spot=spot,
    )


def random_poses(seed: int, scene: TriangleScene, num_frames: int) -> np.ndarray:
    """Every geom turned any way, somewhere above and sometimes through the floor."""
    random = np.random.default_rng(seed)
    turn = np.linalg.qr(random.normal(size=(num_frames, scene.num_geoms, 3, 3)))[0]
    turn[..., 0] *= np.sign(np.linalg.det(turn))[..., None]
    place = random.uniform((-1, -1, -0.1), (1, 1, 1.2), (num_frames, scene.num_geoms, 3))[..., None]
    return np.concatenate((turn, place), -1).reshape(num_frames, scene.num_geoms, 12).astype(np.float32)
