"""The reference drawing of triangle scenes, in plain torch and float64: what `alewm.kernels.raster` says, in steps."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from alewm.kernels.raster import SAMPLES, TriangleScene
from alewm.shapes import Float, Tensor, UInt8

_SLOPE_BIAS, _CONSTANT_BIAS = 1.5, 2.0**-20


def draw_reference(scene: TriangleScene, poses: Float[np.ndarray, "F G 12"]) -> UInt8[np.ndarray, "F Y X 3"]:
    """Frames of the scene with its geoms at `poses` (geom to world), one after the other."""
    return np.stack([_Frame(scene, _double(pose)).pixels() for pose in poses])


def _double(array: np.ndarray) -> Tensor:
    """In twice the precision of the fast paths: where these differ from the reference, it is by their rounding."""
    return torch.from_numpy(np.asarray(array, np.float64))


def _map(matrix: Tensor, points: Tensor, *, turn_only: bool = False) -> Tensor:
    """`points` [..., 3] mapped by matrices [..., 12]."""
    rows = matrix.view(*matrix.shape[:-1], 3, 4)
    turned: Tensor = (rows[..., :3] * points.unsqueeze(-2)).sum(-1)
    return turned if turn_only else turned + rows[..., 3]


@dataclass
class _Seen:
    """Which triangle each sample sees, and pairs of a pixel and a triangle it sees, at the pixel's centre."""

    nearest: Tensor  # [n * n, 4], -1 for none
    pixel: Tensor
    triangle: Tensor
    weight: Tensor  # [pairs, 3], of the triangle's corners
    pair_of_sample: Tensor  # [n * n, 4]


class _Frame:
    def __init__(self, scene: TriangleScene, poses: Tensor) -> None:
        self.scene = scene
        self.triangles = torch.from_numpy(scene.triangles).long()
        self.geom = torch.from_numpy(scene.triangle_geom).long()
        corner_pose = poses[self.geom].unsqueeze(1)
        self.points = _map(corner_pose, _double(scene.vertices)[self.triangles])  # [T, 3 corners, 3], in the world
        self.normals = _map(corner_pose, _double(scene.normals)[self.triangles], turn_only=True)
        self.material = _double(scene.materials)
        self.lights = _double(scene.lights)

    def pixels(self) -> UInt8[np.ndarray, "Y X 3"]:
        scene, n = self.scene, self.scene.size
        plane_points = _double(scene.plane_points).reshape(-1, 4)
        if scene.has_caster:
            self._draw_shadow_map()
            in_light = self._in_light(plane_points[:, :3]) | (plane_points[:, 3] == 0)
        else:
            in_light = torch.ones(n * n, dtype=torch.bool)
        lit, dark = (_double(image).reshape(-1, 3) for image in (scene.lit, scene.dark))
        colour = torch.where(in_light[:, None], lit, dark)[:, None].expand(-1, 4, -1).clone()
        if scene.has_mirror:
            seen = self._seen(scene.mirrored_camera, torch.zeros(n * n, 4, dtype=torch.float64), is_mirrored=True)
            plain, cast = self._lit_corners(seen.triangle, scene.mirrored_eye, scene.reflectance)
            reflected = _eight_bits(((plain + cast).clamp(0, 1) * seen.weight[..., None]).sum(1))
            is_here = (seen.nearest >= 0) & (plane_points[:, 3] == 2)[:, None]
            colour[is_here] = (colour[is_here] + reflected[seen.pair_of_sample[is_here]]).clamp(max=255)
        seen = self._seen(scene.camera, _double(scene.plane_depth).reshape(-1, 4), is_mirrored=False)
        plain, cast = self._lit_corners(seen.triangle, scene.eye, 1.0)
        first, second = (_eight_bits((part.clamp(0, 1) * seen.weight[..., None]).sum(1)) for part in (plain, cast))
        centre = (self.points[seen.triangle] * seen.weight[..., None]).sum(1)
        if scene.has_caster:
            second = second * self._in_light(centre)[:, None]
        total = (first + second).clamp(max=255)
        is_here = seen.nearest >= 0
        colour[is_here] = total[seen.pair_of_sample[is_here]]
        mean = (colour.sum(1) * 0.25 + 0.5).floor()
        return mean.reshape(n, n, 3).flip(0).to(torch.uint8).numpy()

    def _seen(self, camera: Float[np.ndarray, "12"], behind: Tensor, *, is_mirrored: bool) -> _Seen:
        """What is nearer than `behind` (1 / distance at every sample)."""
        scene, n = self.scene, self.scene.size
        local = _map(_double(camera), self.points)
        distance = -local[..., 2]
        w = 1 / distance.clamp_min(scene.near)
        screen = (scene.focal * local[..., :2] * w[..., None] + 1) * (n / 2)
        edges, area = _edges(screen)
        is_front = (area < 0) if is_mirrored else (area > 0)
        ok = is_front & (distance > scene.near).all(-1)
        triangle, x, y = _boxes(screen.amin(1) + 0.125, screen.amax(1) - 0.125, ok, n)
        found = []
        for sample, (right, up) in enumerate(SAMPLES):
            at = torch.stack((x + right, y + up, torch.ones_like(x + right)), -1)
            e = (edges[triangle] * at[:, None]).sum(-1) * area[triangle].sign()[:, None]
            inside = (e >= 0).all(-1).nonzero()[:, 0]
            depth = (e[inside] * w[triangle[inside]]).sum(-1) / area[triangle[inside]].abs()
            found.append(((y[inside] * n + x[inside]) * 4 + sample, depth, triangle[inside]))
        place, depth, triangle = (torch.cat(parts) for parts in zip(*found, strict=True))
        best = behind.flatten().scatter_reduce(0, place, depth, "amax")
        wins = depth >= best[place]
        nearest = torch.full((n * n * 4,), -1).scatter_reduce_(0, place[wins], triangle[wins], "amax").view(-1, 4)
        pixel, place_in_pixel = (nearest >= 0).nonzero(as_tuple=True)
        key = pixel * len(self.geom) + nearest[pixel, place_in_pixel]
        pairs, which = torch.unique(key, return_inverse=True)
        pixel_of_pair, triangle_of_pair = pairs // len(self.geom), pairs % len(self.geom)
        centre = torch.stack((pixel_of_pair % n + 0.5, pixel_of_pair // n + 0.5, torch.ones(len(pixel_of_pair))), -1)
        weight = (edges[triangle_of_pair] * centre[:, None]).sum(-1) * w[triangle_of_pair]
        pair_of_sample = torch.full((n * n, 4), -1)
        pair_of_sample[pixel, place_in_pixel] = which
        return _Seen(nearest, pixel_of_pair, triangle_of_pair, weight / weight.sum(-1, keepdim=True), pair_of_sample)

    def _lit_corners(self, triangle: Tensor, eye: Float[np.ndarray, "3"], tint: float) -> tuple[Tensor, Tensor]:
        """Colours [pairs, 3 corners, 3] by the lights without shadow, and by the caster."""
        points, normals, geom = self.points[triangle], self.normals[triangle], self.geom[triangle]
        material = self.material[geom][:, None]
        colour, specular, shininess = tint * material[..., :3], material[..., 3:4], material[..., 4:5]
        to_eye = F.normalize(_double(eye) - points, dim=-1)
        sums = [torch.zeros_like(points), torch.zeros_like(points)]
        for light in self.lights:
            is_directional, casts, cosine_limit, exponent = light[:4].tolist()
            direction, place, ambient, diffuse, gloss = light[4:].view(5, 3)
            to_light = F.normalize(-direction.expand_as(points) if is_directional else place - points, dim=-1)
            cosine = -(to_light * direction).sum(-1, keepdim=True)
            cone = cosine.clamp_min(0) ** exponent * (cosine >= cosine_limit) if cosine_limit >= -1 else 1.0
            facing = (normals * to_light).sum(-1, keepdim=True)
            half = (normals * F.normalize(to_light + to_eye, dim=-1)).sum(-1, keepdim=True)
            shine = specular * half.clamp_min(0) ** shininess * (facing > 0)
            sums[int(casts)] += cone * (colour * (ambient + diffuse * facing.clamp_min(0)) + gloss * shine)
        return sums[0], sums[1]

    def _on_map(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Places on the shadow map from -1 to 1, and depths that grow towards the caster."""
        scene = self.scene
        local = _map(_double(scene.caster), points)
        distance, near, far = -local[..., 2], scene.caster_near, scene.caster_far
        if scene.caster_is_spot:
            distance = distance.clamp_min(near)
            depth = near * (far - distance) / (distance * (far - near))
            return scene.caster_focal * local[..., :2] / distance[..., None], depth
        return scene.caster_focal * local[..., :2], (far - distance) / (far - near)

    def _draw_shadow_map(self) -> None:
        S = self.scene.shadow_size
        place, depth = self._on_map(self.points)
        texel = 1 + (place * 0.5 + 0.5) * (S - 2)  # MuJoCo leaves a border of one texel
        edges, area = _edges(texel)
        ok = (area != 0) & (depth < 1).all(-1)  # none of a corner nearer than the map begins
        triangle, x, y = _boxes((texel.amin(1) - 0.5).ceil(), texel.amax(1) - 0.5, ok, S)
        at = torch.stack((x + 0.5, y + 0.5, torch.ones_like(x + 0.5)), -1)
        e = (edges[triangle] * at[:, None]).sum(-1) / area[triangle][:, None]
        inside = (e >= 0).all(-1).nonzero()[:, 0]
        slope = (edges[..., :2] * depth[..., None]).sum(1).abs().amax(-1) / area.abs()
        biased = (e[inside] * depth[triangle[inside]]).sum(-1) - _SLOPE_BIAS * slope[triangle[inside]] - _CONSTANT_BIAS
        self.map = torch.zeros(S * S, dtype=torch.float64).scatter_reduce_(0, y[inside] * S + x[inside], biased, "amax")

    def _in_light(self, points: Tensor) -> Tensor:
        S = self.scene.shadow_size
        place, depth = self._on_map(points)
        texel = ((place * 0.5 + 0.5) * S).clamp(0, S - 1).long()
        return depth.clamp_min(0) >= self.map[texel[..., 1] * S + texel[..., 0]]


def _edges(corners: Tensor) -> tuple[Tensor, Tensor]:
    """Coefficients [T, 3, 3] of (x, y, 1), positive on the inner side of each edge, and twice the signed area."""
    a, b = corners[:, [1, 2, 0]], corners[:, [2, 0, 1]]
    offset = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    return torch.stack((a[..., 1] - b[..., 1], b[..., 0] - a[..., 0], offset), -1), offset.sum(-1)


def _boxes(low: Tensor, high: Tensor, ok: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Every (triangle, x, y) of whole places from `low` to `high`, both included, inside the picture."""
    ok = ok & (high >= 0).all(-1) & (low < size).all(-1)
    first, last = low.floor().clamp(0, size - 1).long(), high.floor().clamp(0, size - 1).long()
    sides = (last - first + 1).clamp_min(0) * ok[:, None]
    count = sides.prod(-1)
    triangle = torch.repeat_interleave(torch.arange(len(count)), count)
    place = torch.arange(len(triangle)) - (count.cumsum(0) - count)[triangle]
    wide = sides[triangle, 0]
    return triangle, first[triangle, 0] + place % wide, first[triangle, 1] + place // wide


def _eight_bits(colour: Tensor) -> Tensor:
    return (colour.clamp(0, 1) * 255 + 0.5).floor()
