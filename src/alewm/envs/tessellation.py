"""Triangles and normals of MuJoCo's shapes, as its OpenGL renderer makes them: [T, 3 corners, 3] each."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from alewm.envs.offscreen import mujoco
from alewm.shapes import Float

Surface = tuple[Float[np.ndarray, "_ 3 3"], Float[np.ndarray, "_ 3 3"]]
"""Corners and their normals, counter-clockwise seen from outside."""

_SHAPES = {
    int(mujoco.mjtGeom.mjGEOM_SPHERE): "sphere",
    int(mujoco.mjtGeom.mjGEOM_ELLIPSOID): "ellipsoid",
    int(mujoco.mjtGeom.mjGEOM_CAPSULE): "capsule",
    int(mujoco.mjtGeom.mjGEOM_CYLINDER): "cylinder",
    int(mujoco.mjtGeom.mjGEOM_BOX): "box",
    int(mujoco.mjtGeom.mjGEOM_MESH): "mesh",
}
_SMOOTH = 0.8
"""A mesh's corner has its own normal where its cosine to the face's is at least this, else the face's."""


def can_tessellate(geom_type: int) -> bool:
    """Whether `triangles` knows this type of geom."""
    return geom_type in _SHAPES


def triangles(model: Any, geoms: Sequence[int]) -> dict[str, Any]:
    """The arrays of a `TriangleScene` that describe its triangles, those of `geoms`.

    Corners that several triangles share, with the same normal, are kept once.
    """
    vertices, normals, corners_of, owners, start = [], [], [], [], [0]
    for owner, geom in enumerate(geoms):
        corners, directions = _surface(model, geom)
        rows = np.concatenate((corners, directions), -1).reshape(-1, 6).astype(np.float32)
        unique, which = np.unique(rows, axis=0, return_inverse=True)
        vertices.append(unique[:, :3])
        normals.append(unique[:, 3:])
        corners_of.append(start[-1] + which.reshape(-1, 3))
        owners.append(np.full(len(corners), owner))
        start.append(start[-1] + len(unique))
    return {
        "vertices": np.concatenate([np.empty((0, 3)), *vertices]).astype(np.float32),
        "normals": np.concatenate([np.empty((0, 3)), *normals]).astype(np.float32),
        "triangles": np.concatenate([np.empty((0, 3)), *corners_of]).astype(np.int32),
        "triangle_geom": np.concatenate([np.empty(0), *owners]).astype(np.int32),
        "vertex_start": np.array(start, np.int32),
    }


def _surface(model: Any, geom: int) -> Surface:
    """The surface of a geom in its own frame."""
    shape = _SHAPES[int(model.geom_type[geom])]
    if shape == "mesh":
        return _mesh(model, int(model.geom_dataid[geom]))
    size = model.geom_size[geom]
    quality = model.vis.quality
    slices, stacks = int(quality.numslices), int(quality.numstacks)
    if shape == "box":
        return _scaled(_box(int(quality.numquads)), size)
    if shape in ("sphere", "ellipsoid"):
        whole = _joined(_half_sphere(1, slices, stacks // 2), _half_sphere(-1, slices, stacks // 2))
        return _scaled(whole, size if shape == "ellipsoid" else np.full(3, size[0]))
    radius, half_length = size[0], size[1]
    side = _scaled(_tube(slices, stacks), np.array([radius, radius, half_length]))
    if shape == "cylinder":
        ends = (_disc(sign, slices, stacks // 2) for sign in (1, -1))
        return _joined(side, *(_scaled(end, np.array([radius, radius, half_length])) for end in ends))
    caps = []
    for sign in (1, -1):
        corners, normals = _half_sphere(sign, slices, stacks // 2)
        caps.append((corners * radius + np.array([0, 0, sign * half_length]), normals))
    return _joined(side, *caps)


def _joined(*parts: Surface) -> Surface:
    return np.concatenate([corners for corners, _ in parts]), np.concatenate([normals for _, normals in parts])


def _scaled(of: Surface, size: Float[np.ndarray, "3"]) -> Surface:
    normals = of[1] / size
    return of[0] * size, normals / np.linalg.norm(normals, axis=-1, keepdims=True)


def _quads(corners: Float[np.ndarray, "Q 4 3"]) -> Float[np.ndarray, "T 3 3"]:
    """Two triangles of every quadrilateral, cut where Mesa cuts them."""
    return np.concatenate((corners[:, [0, 1, 3]], corners[:, [1, 2, 3]]))


def _on_sphere(azimuth: np.ndarray, elevation: np.ndarray | float) -> np.ndarray:
    level = np.cos(elevation)
    return np.stack((np.cos(azimuth) * level, np.sin(azimuth) * level, np.sin(elevation) + 0 * azimuth), -1)


def _turns(slices: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each slice begins and ends."""
    edges = 2 * np.pi * np.arange(slices + 1) / slices
    return edges[:-1], edges[1:]


def _half_sphere(sign: int, slices: int, stacks: int) -> Surface:
    begin, end = _turns(slices)
    levels = sign * np.pi / 2 * np.arange(stacks + 1) / stacks
    pole = np.tile([0.0, 0.0, float(sign)], (slices, 1))
    cap = [_on_sphere(begin, levels[-2]), _on_sphere(end, levels[-2]), pole]
    parts = [np.stack(cap[::sign], 1)]
    for low, high in itertools.pairwise(levels[:-1]):
        ring = [_on_sphere(begin, low), _on_sphere(end, low), _on_sphere(end, high), _on_sphere(begin, high)]
        parts.append(_quads(np.stack(ring[::sign], 1)))
    corners = np.concatenate(parts)
    return corners, corners


def _tube(slices: int, stacks: int) -> Surface:
    begin, end = _turns(slices)
    heights = 2 * np.arange(stacks + 1) / stacks - 1
    parts = []
    for low, high in itertools.pairwise(heights):
        ring = [(begin, low), (end, low), (end, high), (begin, high)]
        parts.append(_quads(np.stack([np.stack((np.cos(a), np.sin(a), 0 * a + z), -1) for a, z in ring], 1)))
    corners = np.concatenate(parts)
    return corners, corners * (1, 1, 0)


def _disc(sign: int, slices: int, rings: int) -> Surface:
    begin, end = _turns(slices)

    def circle(angle: np.ndarray, ring: int) -> np.ndarray:
        radius = ring / rings
        return np.stack((radius * np.cos(angle), radius * np.sin(angle), 0 * angle + sign), -1)

    parts = [np.stack([circle(begin, 1), circle(end, 1), circle(begin, 0)][::sign], 1)]
    for ring in range(1, rings):
        quad = [circle(begin, ring), circle(begin, ring + 1), circle(end, ring + 1), circle(end, ring)]
        parts.append(_quads(np.stack(quad[::sign], 1)))
    corners = np.concatenate(parts)
    return corners, np.broadcast_to(np.array([0.0, 0.0, sign]), corners.shape)


def _box(pieces: int) -> Surface:
    """Every face is `pieces` by `pieces` quadrilaterals; a, b and the outward axis are a right-handed frame."""
    edges = 2 * np.arange(pieces + 1) / pieces - 1
    low_a, low_b = (part.ravel() for part in np.meshgrid(edges[:-1], edges[:-1], indexing="ij"))
    high_a, high_b = low_a + 2 / pieces, low_b + 2 / pieces
    one = np.ones_like(low_a)
    parts, normals = [], []
    for axis in range(3):
        a_axis, b_axis = (axis + 1) % 3, (axis + 2) % 3
        for sign in (1, -1):
            quad = [(low_a, low_b), (high_a, low_b), (high_a, high_b), (low_a, high_b)]
            corners = np.empty((len(one), 4, 3))
            for place, (a, b) in enumerate(quad[::sign]):
                corners[:, place, a_axis], corners[:, place, b_axis], corners[:, place, axis] = a, b, sign * one
            triangles = _quads(corners)
            parts.append(triangles)
            normals.append(np.broadcast_to(sign * np.eye(3)[axis], triangles.shape))
    return np.concatenate(parts), np.concatenate(normals)


def _mesh(model: Any, mesh: int) -> Surface:
    first, count = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
    faces = slice(first, first + count)
    corners = model.mesh_vert[model.mesh_vertadr[mesh] + model.mesh_face[faces]].astype(np.float64)
    normals = model.mesh_normal[model.mesh_normaladr[mesh] + model.mesh_facenormal[faces]].astype(np.float64)
    normals /= np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-15)
    if model.mesh_texcoordadr[mesh] >= 0:
        return corners, normals
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])[:, None]
    across /= np.maximum(np.linalg.norm(across, axis=-1, keepdims=True), 1e-15)
    is_sharp = (normals * across).sum(-1, keepdims=True) < _SMOOTH
    return corners, np.where(is_sharp, across, normals)
