"""Writes a small data set with the LeRobot that Python was started with; prints its format's version as JSON.

A script, because the version of LeRobot is decided by the folders that Python is started with.
"""

import inspect
import json
import sys
from pathlib import Path

from lerobot.datasets.lerobot_dataset import CODEBASE_VERSION, LeRobotDataset
from lerobot_frames import LENGTHS, SIZE, frames


def main(folder, kind):
    features = {
        "observation.images.top": {"dtype": kind, "shape": (SIZE, SIZE, 3), "names": ["height", "width", "channels"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    }
    dataset = LeRobotDataset.create("here/there", fps=10, features=features, root=folder, use_videos=kind == "video")
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
    main(Path(sys.argv[1]), sys.argv[2])
