"""Writes a small data set with the LeRobot that Python was started with; prints its format's version as JSON."""

import inspect
import json
import sys
from pathlib import Path

import numpy as np
from lerobot.datasets.lerobot_dataset import CODEBASE_VERSION, LeRobotDataset

LENGTHS = (6, 9, 7)


def frames(episode):
    """Pixels and actions of an episode, which the check knows too."""
    generator = np.random.default_rng(episode)
    length = LENGTHS[episode]
    pixels = generator.integers(0, 256, (length, 32, 32, 3), dtype=np.uint8)
    return pixels, generator.normal(size=(length, 2)).astype(np.float32)


def main(folder):
    features = {
        "observation.images.top": {"dtype": "image", "shape": (32, 32, 3), "names": ["height", "width", "channel"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    }
    dataset = LeRobotDataset.create("here/there", fps=10, features=features, root=folder, use_videos=False)
    takes_task = "task" in inspect.signature(dataset.add_frame).parameters
    for episode in range(len(LENGTHS)):
        for pixels, action in zip(*frames(episode), strict=True):
            frame = {"observation.images.top": pixels, "action": action}
            if takes_task:
                dataset.add_frame(frame, task="go")
            else:
                dataset.add_frame({**frame, "task": "go"})
        dataset.save_episode()
    if hasattr(dataset, "finalize"):
        dataset.finalize()
    print(json.dumps({"version": CODEBASE_VERSION}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
