"""The episodes of scales without a GPU, which an experiment records itself."""

from alewm.experiments.collection import collect_task
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.scale import TINY_PRESET, OwnData
from alewm.experiments.presets import preset


def record_own_data(library: Library, own: OwnData, data_sets: set[str]) -> None:
    """Record Two-Room episodes of small images for each of `data_sets` that `library` lacks.

    A second data set, `two-room-2`, has other episodes.
    """
    size = preset(TINY_PRESET).model.encoder.image_size
    for name in sorted(data_sets):
        number = int(name.removeprefix("two-room-")) - 1 if name != "two-room" else 0
        path, seed = library.data_path(name), own.seed + number
        collect_task("two-room", path, num_episodes=own.num_episodes, seed=seed, image_size=size, jobs=1)
