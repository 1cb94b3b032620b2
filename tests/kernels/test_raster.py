"""The rasteriser's three paths draw the same frames, and C stands what it is given."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from address_sanitizer import FUZZ_ROUNDS, run_with_address_sanitizer
from alewm.errors import InputError
from alewm.kernels import raster_triton
from alewm.kernels.raster import CRenderer
from alewm.kernels.raster_triton import Blocks, TritonRenderer
from raster_reference import draw_reference
from triangle_scenes import random_poses, random_scene

KINDS = {
    "spot and mirror": {},
    "spot": {"mirror": False},
    "directional": {"spot": False, "mirror": False},
    "no shadows": {"caster": False, "spot": False},
    "fine map": {"shadow_size": 250, "mirror": False},
}

GARBAGE = {torch.int64: 0x7F << 56, torch.int32: 0x7F << 24, torch.float32: 1e9, torch.uint8: 0x7F}
"""What memory holds before anything is written: here what would be seen, a triangle above all others."""

UNCUT = Blocks(triangles=16, pixels=128, longest_edge=9.0)
"""Triangles as they are: their boxes on the shadow map are several words wide, with several texels in each."""


def share_of_different_pixels(frames, others):
    return (frames != others).any(-1).mean()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_c_draws_the_reference(kind, seed):
    scene = random_scene(seed, **KINDS[kind])
    poses = random_poses(seed, scene, 6)
    frames, exact = CRenderer(scene).draw(poses), draw_reference(scene, poses)
    assert share_of_different_pixels(exact, scene.lit[::-1]) > 0.1, "something is to be seen"
    # Rounding may move an edge across a sample or a texel, of one pixel in a thousand.
    assert share_of_different_pixels(frames, exact) < 1e-3


def small_scene(kind):
    """Small, since the interpreter pays for every pixel of a box; tiles and words of texels reach over the edges.

    Of a floor that mirrors every second column does not.
    """
    scene = random_scene(11, **(KINDS[kind] | {"shadow_size": 37, "size": 13, "num_geoms": 2}))
    scene.plane_points[:, ::2, 3] = np.minimum(scene.plane_points[:, ::2, 3], 1)
    return scene, random_poses(11, scene, 2)


@pytest.mark.parametrize("kind", ["spot and mirror", "spot", "directional"])
def test_triton_draws_what_c_draws(kind, monkeypatch):
    scene, poses = small_scene(kind)
    renderer = TritonRenderer(scene, torch.device("cpu"), UNCUT)
    frames = renderer.draw(poses)
    np.testing.assert_array_equal(frames.numpy(), CRenderer(scene).draw(poses))
    assert share_of_different_pixels(frames.numpy(), scene.lit[::-1]) > 0.1
    unshadowed = CRenderer(replace(scene, has_caster=False)).draw(poses)
    assert share_of_different_pixels(frames.numpy(), unshadowed) > 0.01
    monkeypatch.setattr(raster_triton, "_MOST_BYTES", 1)  # frame by frame
    others = TritonRenderer(scene, torch.device("cpu"), Blocks(128, 8, longest_edge=0.2, filled=64, casting=16))
    assert torch.equal(others.draw(poses), frames), "a second drawing in other blocks repeats the first"


@pytest.mark.parametrize("kind", ["spot", "directional"])
def test_what_is_beyond_the_casters_far_plane_is_lit_on_every_path(kind):
    scene, poses = small_scene(kind)
    scene = replace(scene, caster_far=1.0)
    frames = CRenderer(scene).draw(poses)
    unshadowed = CRenderer(replace(scene, has_caster=False)).draw(poses)
    assert share_of_different_pixels(frames, unshadowed) < 0.05, "nearly all is beyond it"
    np.testing.assert_array_equal(TritonRenderer(scene, torch.device("cpu"), UNCUT).draw(poses).numpy(), frames)
    assert share_of_different_pixels(draw_reference(scene, poses), frames) < 0.01


@pytest.mark.parametrize("kind", ["spot and mirror", "directional", "no shadows"])
def test_triton_reads_no_memory_that_it_has_not_written_and_counts_what_it_takes(kind, monkeypatch):
    scene, poses = small_scene(kind)
    renderer = TritonRenderer(scene, torch.device("cpu"), UNCUT)
    taken, zeros = [], torch.zeros

    def noted(made):
        taken.append(made.nbytes)
        return made

    def not_empty(*size, dtype, device):
        return noted(torch.full(size, GARBAGE[dtype], dtype=dtype, device=device))

    with monkeypatch.context() as patched:
        patched.setattr(torch, "empty", not_empty)
        patched.setattr(torch, "zeros", lambda *size, **options: noted(zeros(*size, **options)))
        frames = renderer.draw(poses)
    np.testing.assert_array_equal(frames.numpy(), CRenderer(scene).draw(poses))
    assert renderer.frames_at_once == raster_triton._MOST_BYTES // (sum(taken) // len(poses))


def test_a_frame_depends_on_its_poses_alone():
    scene = random_scene(7)
    poses = random_poses(7, scene, 9)
    together = CRenderer(scene, num_threads=4).draw(poses)
    apart = np.concatenate([CRenderer(scene).draw(pose[None]) for pose in poses])
    np.testing.assert_array_equal(together, apart)
    np.testing.assert_array_equal(CRenderer(scene).draw(poses[::-1]), together[::-1])


def test_nothing_before_the_camera_leaves_the_planes():
    scene = random_scene(8, size=13)
    poses = random_poses(8, scene, 1)
    poses.reshape(1, -1, 3, 4)[..., 3] = (0, 0, 50)  # behind the viewer
    for renderer in (CRenderer(scene), TritonRenderer(scene, torch.device("cpu"), UNCUT)):
        np.testing.assert_array_equal(renderer.draw(poses)[0], scene.lit[::-1])
        assert renderer.draw(poses[:0]).shape == (0, 13, 13, 3)


@pytest.mark.parametrize("num_geoms", [0, 2])
def test_a_scene_without_triangles_is_its_planes(num_geoms):
    scene, _ = small_scene("spot")
    scene = replace(
        scene,
        **{name: getattr(scene, name)[:0] for name in ("vertices", "normals", "triangles", "triangle_geom")},
        vertex_start=np.zeros(num_geoms + 1, np.int32),
        materials=scene.materials[:num_geoms],
    )
    poses = np.zeros((3, num_geoms, 12), np.float32)
    expected = np.broadcast_to(scene.lit[::-1], (3, *scene.lit.shape))
    for renderer in (CRenderer(scene), TritonRenderer(scene, torch.device("cpu"), UNCUT)):
        np.testing.assert_array_equal(renderer.draw(poses), expected)
        assert renderer.draw(poses[:0]).shape == (0, *scene.lit.shape)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"triangles": 100}, "powers of two"),
        ({"casting": 0}, "powers of two"),
        ({"pixels": 4}, "at least 8 pixels"),
        ({"longest_edge": 0.0}, "must be positive"),  # of no length: triangles would be halved for ever
    ],
)
def test_blocks_that_no_kernel_can_take_are_refused(sizes, words):
    with pytest.raises(InputError, match=words):
        Blocks(**sizes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"triangles": lambda scene: scene.triangles + 1}, "point to its corners"),
        ({"vertex_start": lambda scene: scene.vertex_start + 1}, "point to its corners"),
        ({"triangle_geom": lambda scene: scene.triangle_geom - 1}, "point to its corners"),
        ({"vertices": lambda scene: scene.vertices * np.float32("nan")}, "must be finite"),
        ({"caster_near": lambda scene: 0.0}, "must be positive"),
        ({"shadow_size": lambda scene: 1}, "shadow maps 3 to"),
    ],
)
def test_a_scene_that_would_be_read_out_of_bounds_is_refused(change, words):
    scene = random_scene(0)
    with pytest.raises(InputError, match=words):
        CRenderer(replace(scene, **{name: make(scene) for name, make in change.items()}))


@pytest.mark.parametrize("poses", [np.zeros((2, 2, 12)), np.full((1, 3, 12), np.inf)])
def test_poses_that_do_not_fit_are_refused(poses):
    with pytest.raises(InputError, match="Poses"):
        CRenderer(random_scene(0)).draw(poses)


def test_any_poses_are_drawn_without_touching_other_memory():
    script = Path(__file__).with_name("fuzz_raster.py")
    told = json.loads(run_with_address_sanitizer(script, "0", str(150 * FUZZ_ROUNDS)))
    assert told["drawn"] == 150 * FUZZ_ROUNDS
    assert min(told["kinds"].values()) > 0
    assert told["refused"] == len(told["arrays"])
