"""Data files: `alewm collect` records one, `convert` makes one of other formats, `inspect` says what one holds."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from alewm.cli.flags import Flag, Maybe
from alewm.errors import InputError

if TYPE_CHECKING:
    from alewm.data.collect import Collected


@dataclass(frozen=True)
class Collect:
    """Record episodes of a task into one HDF5 file.

    The same settings give the same bytes, whatever the number of processes. Repeating the command after an
    interruption continues; a complete file is left as it is.
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """The task, for example two-room."""
    out: Path
    """The file to write; its folder is made if it does not exist."""
    episodes: Maybe[int] = None
    """How many episodes: 10,000 if not given, and all copies of --demonstrations."""
    seed: int = 0
    """Every episode is determined by this seed and its number."""
    image_size: Maybe[int] = None
    """Pixels per side of a frame; if not given, the task's own (224). Smaller frames are exact area averages."""
    behaviour: Maybe[str] = None
    """What acts while recording, for tasks that have a choice; if not given, the task's first."""
    demonstrations: Maybe[Path] = None
    """Push-T: the file of human demonstrations, pusht_cchi_v7_replay.zarr (folder, zip or tar) or an npz. Noisy copies
    of them are recorded, as in the published training data."""
    copies: Maybe[int] = None
    """Episodes per demonstration; if not given, 101, as published. The first is exact, the others have noise."""
    noise: Maybe[float] = None
    """Mean standard deviation of the noise on the actions of copies; if not given, 0.038, which gives all actions the
    standard deviation that they have in the published file."""
    held_out: Flag = False
    """Record the demonstrations that the published training file leaves out (21 of 206), for a test on demonstrations
    never seen; otherwise the others (185)."""
    max_steps: Maybe[int] = None
    """Cut episodes after this many environment steps, for a quick try; if not given, where the task does."""
    draw_every: int = 1
    """Draw one of so many steps, 1 or the frame skip. Training looks at frames that are a frame skip apart; windows
    then start at drawn steps only. Where drawing takes the time (reacher, cube), 5 gives four times as many episodes in
    the same time."""
    frame_skip: Maybe[int] = None
    """Environment steps per latent step, stored in the file; training takes it from there. If not given, training
    decides: 5, as in the paper."""
    drawing: Literal["auto", "mujoco", "batched"] = "auto"
    """Who draws (reacher, cube): MuJoCo's OpenGL, or our rasteriser in batches, ten times as fast on a CPU and nearly
    the same frames. auto is batched where that works, and goes on as a file was begun. The file says which."""
    shadow_size: Maybe[int] = None
    """Texels per side of the shadow map (reacher, cube); if not given, the model's own, 2048 and 4096."""
    jobs: int = 0
    """Processes to use; 0 means one per core."""

    WHEN_INTERRUPTED: ClassVar[str] = "What was finished is kept; repeat the command to continue."

    def run(self) -> None:
        """Records what is missing of the file."""
        print(self.collected().in_words(self.out))
        print(self.out)

    def collected(self) -> "Collected":
        """What was recorded now."""
        from alewm.envs.collect_task import Demonstrations, collect_task
        from alewm.envs.registry import get_task

        task = get_task(self.task)
        chosen = None
        if self.demonstrations is not None:
            chosen = Demonstrations(self.demonstrations, self.copies, self.noise, self.held_out)
        elif self.copies is not None or self.noise is not None or self.held_out:
            raise InputError("--copies, --noise and --held-out are about copies of --demonstrations: give those, too.")
        elif task.demonstrations_home is not None and self.behaviour is None:
            print(
                f"No --demonstrations were given: the behaviour {task.default_behaviour!r} is recorded instead. "
                f"{task.where_demonstrations}",
                file=sys.stderr,
            )
        return collect_task(
            self.task,
            self.out,
            num_episodes=self.episodes,
            seed=self.seed,
            image_size=self.image_size,
            behaviour=self.behaviour,
            demonstrations=chosen,
            max_steps=self.max_steps,
            draw_every=self.draw_every,
            frame_skip=self.frame_skip,
            drawing=self.drawing,
            shadow_size=self.shadow_size or 0,
            jobs=self.jobs,
        )


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
            self._check_file()
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
            others = ", ".join(name for name in store.column_names if name not in ("pixels", "action"))
            also = f"; also {others}" if others else ""
            print(f"frames of {height} x {width}, {store.action_dim} numbers per action{also}")
        for note in notes:
            print(note)
        print(self.out)

    def _check_file(self) -> None:
        if self.source.suffix.lower() in (".csv", ".parquet", ".npz", ".mp4", ".mkv", ".avi", ".mov", ".webm"):
            raise InputError(
                f"{self.source} is one file of a recording. Give the folder that holds all of them: alewm convert "
                f"{shlex.quote(str(self.source.parent))} --out {shlex.quote(str(self.out))}"
            )
        if self.out.exists() and self.out.samefile(self.source):
            raise InputError(f"--out names the source itself, {self.source}. Give the copy another name.")
        of_folders = ("format", "camera", "image_size", "fit", "task", "fps", "frame_skip", "episodes")
        given = [name for name in of_folders if getattr(self, name) != getattr(type(self), name)]
        if given:
            flags = ", ".join("--" + name.replace("_", "-") for name in given)
            raise InputError(f"{self.source} is a data file, which is copied as it is; {flags} is for folders.")


@dataclass(frozen=True)
class Inspect:
    """Say what a data file, run folder, checkpoint or LeRobot data set holds.

    Of a data file: its columns, episodes, lengths, action statistics and problems, and a picture of some frames. A file
    that cannot be used is described as far as it can be read; then follows what is wrong, with status 2.
    """

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """The file or folder."""
    out: Maybe[Path] = None
    """Where the picture of frames goes; if not given, FILE.frames.png beside the file."""
    quick: Flag = False
    """Do not read every frame of a file without checksums, only some."""

    def run(self) -> None:
        if not self.path.exists():
            raise InputError(f"{self.path} does not exist. Give a data file, a run folder or a checkpoint.")
        if self.path.is_dir():
            print(_describe_folder(self.path))
        else:
            self._describe_file()

    def _describe_file(self) -> None:
        from alewm.data.frame_sources import verify_columns, verify_frames
        from alewm.data.inspection import describe_columns, describe_episodes, find_problems, write_contact_sheet
        from alewm.data.store import EpisodeStore

        print(describe_columns(self.path), flush=True)
        with EpisodeStore.open(self.path) as store:
            print(f"\n{describe_episodes(store)}\n", flush=True)
            verify_frames(store, decode=not self.quick)
            verify_columns(store)
            problems = find_problems(store)
            print("\n".join(f"note: {problem}" for problem in problems) or "no problem found")
            print(write_contact_sheet(store, self.out or self.path.with_name(f"{self.path.stem}.frames.png")))


def _describe_folder(path: Path) -> str:
    if (path / "checkpoint.json").is_file():
        from alewm.training.checkpoint import describe_checkpoint

        return describe_checkpoint(path)
    if (path / "config.json").is_file():
        from alewm.training.checkpoint import describe_run

        return describe_run(path)

    from alewm.data.conversion.convert import open_source
    from alewm.data.conversion.recordings import Recordings

    source = open_source(path)
    try:
        if isinstance(source, Recordings):
            _ = source.names  # a folder of something else is found out here
    except InputError:
        if not (inside := _describable_in(path)):
            raise
        commands = "".join(f"\n  alewm inspect {each}" for each in inside)
        return f"{path} holds what these commands describe:{commands}"
    cameras = [] if isinstance(source, Recordings) else source.cameras
    has_choice = len(cameras) > 1
    if has_choice:
        source = open_source(path, camera=cameras[0])  # any of them sees all episodes
    rate = f" at {source.fps:g} fps" if source.fps else ""
    return (
        f"{path}: {source.num_episodes} episodes{rate} ({source.identity()['format']})\n"
        + (f"cameras: {', '.join(cameras)}\n" if has_choice else "")
        + f"To make a data file of them: alewm convert {shlex.quote(str(path))}"
        + f"{' --camera KEY' if has_choice else ''} --out FILE"
    )


def _describable_in(folder: Path) -> list[str]:
    """The runs, checkpoints and data files right below a folder, as words of a command."""
    found = {each.parent for pattern in ("config.json", "checkpoint.json") for each in folder.glob(f"*/{pattern}")}
    found |= {each for each in folder.iterdir() if each.suffix in (".h5", ".hdf5")}
    return [shlex.quote(str(each)) for each in sorted(found)]
