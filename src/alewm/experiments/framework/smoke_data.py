"""The episodes of the smoke scale, which an experiment records itself in a second."""

from alewm.experiments.collection import collect_task
from alewm.experiments.framework.library import Library
from alewm.experiments.presets import preset


def record_smoke_data(library: Library, data_sets: set[str]) -> None:
    """Record twenty Two-Room episodes of small images for each of `data_sets` that `library` lacks.

    The only task of this scale is Two-Room; its second data set, `two-room-2`, has other episodes.
    """
    size = preset("two-room-tiny").model.encoder.image_size
    for name in sorted(data_sets):
        seed = int(name.removeprefix("two-room-")) - 1 if name != "two-room" else 0
        collect_task("two-room", library.data_path(name), num_episodes=20, seed=seed, image_size=size, jobs=1)
