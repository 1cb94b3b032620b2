"""Draws random scenes with reasonable and with wild poses; run under AddressSanitizer."""

import json
import sys
from collections import Counter
from dataclasses import replace

import numpy as np

from address_sanitizer import FLAGS
from alewm.errors import InputError
from alewm.kernels import raster
from triangle_scenes import random_poses, random_scene

raster._FLAGS = (*raster._FLAGS, *FLAGS, "-fsanitize=undefined", "-fno-sanitize-recover=undefined")


ARRAYS = [name for name in raster._ARRAYS if name != "lights"]  # a scene may have any number of lights


def wild(poses, random):
    """Numbers of every size up to what is accepted, flat and empty geoms."""
    kind = random.choice(["usual", "large", "flat", "huge", "mixed"])
    if kind == "large":
        poses = poses * 10.0 ** random.uniform(0, 3)
    elif kind == "flat":
        poses = poses * (random.uniform(size=poses.shape) < 0.7)
    elif kind == "huge":
        poses = random.uniform(-1e6, 1e6, poses.shape)
    elif kind == "mixed":
        poses = poses * 10.0 ** random.uniform(-8, 6, poses.shape)
    return kind, np.clip(poses, -1e6, 1e6)


def refused():
    """How many of a scene's arrays are refused when they are a row short (here no annotation checks shapes)."""
    scene, count = random_scene(0), 0
    for name in ARRAYS:
        short = getattr(scene, name)[:-1]
        shapes = {"mirrored_camera": "camera", "mirrored_eye": "eye"}  # these follow from others
        try:
            raster.CRenderer(replace(scene, **{shapes.get(name, name): short}))
        except (InputError, ValueError):
            count += 1
    return count


if __name__ == "__main__":
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    random = np.random.default_rng(seed)
    kinds: Counter[str] = Counter()
    for i in range(count):
        scene = random_scene(
            int(random.integers(1 << 30)),
            size=int(random.integers(1, 40)),
            shadow_size=int(random.choice([3, 8, 31, 64, 300, 5000])),
            num_geoms=int(random.integers(0, 5)),
            spot=bool(random.integers(2)),
            mirror=bool(random.integers(2)),
            caster=bool(random.integers(4)),
        )
        poses = random_poses(i, scene, int(random.integers(0, 4)))
        kind, poses = wild(poses, random)
        kinds[kind] += 1
        frames = raster.CRenderer(scene, int(random.integers(1, 3))).draw(poses)
        assert frames.shape == (len(poses), scene.size, scene.size, 3)
    print(json.dumps({"drawn": count, "kinds": kinds, "arrays": ARRAYS, "refused": refused()}))
