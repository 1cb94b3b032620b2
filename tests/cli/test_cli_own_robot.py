"""A robot of one's own: trained on, planned with and saved as pages and messages say, without a simulator."""

import re
import shlex

import numpy as np

from alewm.data.store import StoreWriter

FEW = ("--steps", 2, "--batch-size", 4, "--device", "cpu", "--threads", 1)


def record_robot(path, num_actions=7, size=28, num_episodes=4, **attributes):
    path.parent.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    with StoreWriter(path, attributes=attributes) as writer:
        for _ in range(num_episodes):
            pixels = rng.integers(0, 256, (30, size, size, 3), dtype=np.uint8)
            writer.append({"pixels": pixels, "action": rng.normal(size=(30, num_actions)).astype(np.float32)})
    return path


def test_a_file_of_another_robot_is_learned_from_by_doing_what_the_refusal_says(refused, alewm_here, tmp_path):
    for name, attributes in (("named", {"task": "my-robot"}), ("nameless", {})):
        record_robot(tmp_path / f"{name}.h5", **attributes)
        train = ("train", "two-room-tiny", "--data", f"{name}.h5", "--out", name, *FEW)
        advice = re.search(r"--set .*$", refused(*train), flags=re.MULTILINE)
        assert advice, "the refusal ends with what to add"
        assert alewm_here(*train, *shlex.split(advice[0])).splitlines()[-1] == name
