"""`alewm inspect`: what a data file, a run folder, a checkpoint or a folder of recordings is."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from alewm.cli.flags import Flag, Maybe
from alewm.errors import InputError


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
