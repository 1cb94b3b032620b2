"""`alewm convert`: recordings in other formats, as one file to train on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from alewm.cli.flags import Maybe
from alewm.errors import InputError


@dataclass(frozen=True)
class Convert:
    """Write an episode file from a LeRobot data set, stable-worldmodel's formats, or videos with tables of actions.

    A data file instead of a folder is copied into the present layout, in which every column has checksums; its frames
    stay as they are.
    Needs the extra convert, except for images with CSV or npz tables; Lance tables need the extra lance. docs/data.md
    shows the layouts. Repeating the command after an interruption continues; a complete file is left as it is.
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """The folder of the data set or of the recordings, a data set of the Hub (OWNER/NAME, fetched whole), or a data
    file."""
    out: Path
    """The file to write; its folder is made if it does not exist."""
    format: Literal["auto", "recordings", "lerobot", "stable-worldmodel"] = "auto"
    """What the folder holds; auto looks for meta/info.json (LeRobot), then for a Lance table or ep_len.npz
    (stable-worldmodel)."""
    camera: Maybe[str] = None
    """The camera of a data set that has several, for example observation.images.top or pixels_wrist."""
    image_size: Annotated[int | Literal["None"], tyro.conf.arg(metavar="PIXELS")] = 224
    """Pixels per side of a stored frame, averaged over areas; None keeps frames as they were recorded."""
    fit: Literal["squash", "crop"] = "squash"
    """Frames that are not square: averaged to a square whole, or cut to the middle first."""
    task: Maybe[str] = None
    """The task's name, stored in the file; a preset for another task then refuses it."""
    fps: Maybe[float] = None
    """Rows per second, stored in the file; if not given, what the data set or the first video says."""
    frame_skip: Maybe[int] = None
    """Rows per latent step, stored in the file; training takes it from there. If not given, training decides: 5."""
    episodes: Maybe[int] = None
    """Only the first so many episodes."""
    jobs: int = 0
    """Processes to use; 0 means one per core."""

    WHEN_INTERRUPTED: ClassVar[str] = "What was finished is kept; repeat the command to continue."

    def run(self) -> None:
        """Converts what is missing of the file."""
        from alewm.data.conversion.convert import convert, copy_file, open_source
        from alewm.data.conversion.frames import FrameSize
        from alewm.data.store import EpisodeStore
        from alewm.interop.hub import here_or_fetched, is_hub_id

        if self.source.is_file():
            self._check_flags_of_files()
            made, notes = copy_file(self.source, self.out, self.jobs)
        else:
            size = FrameSize(None if self.image_size == "None" else self.image_size, self.fit)
            folder = here_or_fetched(self.source, "dataset")
            made, notes = convert(
                open_source(folder, self.format, camera=self.camera, size=size),
                self.out,
                repository=f"{self.source} at revision {folder.name}" if is_hub_id(self.source) else None,
                task=self.task,
                fps=self.fps,
                frame_skip=self.frame_skip,
                num_episodes=self.episodes,
                jobs=self.jobs,
            )
        with EpisodeStore.open(self.out) as store:
            print(made.in_words(self.out))
            height, width, _ = store.frame_shape
            others = ", ".join(name for name in store.column_names if name not in ("pixels", "action")) or "nothing"
            print(f"frames of {height} x {width}, {store.action_dim} numbers per action; also {others}")
        for note in notes:
            print(note)
        print(self.out)

    def _check_flags_of_files(self) -> None:
        of_folders = ("format", "camera", "image_size", "fit", "task", "fps", "frame_skip", "episodes")
        given = [name for name in of_folders if getattr(self, name) != getattr(type(self), name)]
        if given:
            flags = ", ".join("--" + name.replace("_", "-") for name in given)
            raise InputError(f"{self.source} is a data file, which is copied as it is; {flags} is for folders.")
