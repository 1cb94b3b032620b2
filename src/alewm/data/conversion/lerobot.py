"""LeRobot data sets on disk, versions 2.x and 3.x: Parquet tables, MP4 videos or images inside the tables.

    v2.x    meta/info.json  meta/episodes.jsonl
            data/chunk-000/episode_000000.parquet  videos/chunk-000/KEY/episode_000000.mp4
    v3.x    meta/info.json  meta/episodes/chunk-000/file-000.parquet
            data/chunk-000/file-000.parquet        videos/KEY/chunk-000/file-000.mp4     (several episodes in each)

The templates of the paths stand in `info.json`. Row t holds what was observed at frame t and the action taken there.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from alewm.data.conversion import frames as frame_files
from alewm.data.conversion.frames import CameraEpisodes
from alewm.data.conversion.recordings import checked_episode, parquet_columns
from alewm.errors import InputError
from alewm.files import parse_json, read_object, reading

INFO = "meta/info.json"
_INDEX = ("index", "episode_index", "frame_index")
"""Columns that our file has in its own form."""


def is_lerobot(folder: Path) -> bool:
    """Whether `folder` looks like such a data set."""
    return (folder / INFO).is_file()


@dataclass(frozen=True)
class LeRobotEpisode:
    """Where one episode lies."""

    index: int
    length: int
    table: Path
    video: Path | None
    """None where frames are images inside the table."""
    start_seconds: float | None = None
    """Where it begins in a video of several episodes; None if the video is its own."""


@dataclass(frozen=True)
class LeRobotEpisodes(CameraEpisodes):
    """The episodes of a LeRobot data set."""

    @cached_property
    def info(self) -> dict[str, Any]:
        """`meta/info.json`, checked to have what is needed."""
        path = self.folder / INFO
        if not is_lerobot(self.folder):
            raise InputError(f"{path} does not exist: {self.folder} is no LeRobot data set.")
        info = read_object(path)
        missing = [key for key in ("codebase_version", "fps", "features", "data_path") if key not in info]
        if missing:
            raise InputError(f"{path} lacks {', '.join(missing)}; a LeRobot data set of version 2 or 3 was expected.")
        if str(info["codebase_version"])[:2] not in ("v2", "v3"):
            raise InputError(
                f"{path}: version {info['codebase_version']!r}; 2.x and 3.x can be read. Convert the data set with "
                f"LeRobot's own tool first."
            )
        if not isinstance(info["fps"], (int, float)) or not info["fps"] > 0:
            raise InputError(f"{path}: 'fps' is {info['fps']!r}; a positive number of rows per second was expected.")
        for name in ("data_path", "video_path"):
            if not isinstance(info.get(name) or "", str):
                raise InputError(f"{path}: {name!r} is {info[name]!r}; the template of a path was expected.")
        size = info.get("chunks_size", 1000)
        if not isinstance(size, int) or size < 1:
            raise InputError(f"{path}: 'chunks_size' is {size!r}; a number of episodes was expected.")
        features = info["features"].values() if isinstance(info["features"], dict) else [None]
        if not all(isinstance(feature, dict) and "dtype" in feature for feature in features):
            raise InputError(f"{path}: 'features' must name the dtype of every feature. Download the data set again.")
        return info

    @cached_property
    def cameras(self) -> list[str]:
        """The keys of all cameras, of which there is at least one."""
        cameras = [key for key, feature in self.info["features"].items() if feature["dtype"] in ("video", "image")]
        if not cameras:
            raise InputError(
                f"{self.folder / INFO}: no feature is a video or an image; there are no frames to learn from."
            )
        return cameras

    @cached_property
    def episodes(self) -> list[LeRobotEpisode]:
        is_third = str(self.info["codebase_version"]).startswith("v3")
        found = self._episodes_v3() if is_third else self._episodes_v2()
        if not found:
            where = "meta/episodes/*/*.parquet" if is_third else "meta/episodes.jsonl"
            raise InputError(f"{self.folder} holds no episode: {where} names none. Download the data set again.")
        return sorted(found, key=lambda episode: episode.index)

    @property
    def num_episodes(self) -> int:
        return len(self.episodes)

    @property
    def fps(self) -> float | None:
        return float(self.info["fps"])

    def identity(self) -> dict[str, Any]:
        """What tells this data set from others: its description, and names and sizes of its files."""
        parts = [path for part in ("meta", "data", "videos") for path in (self.folder / part).rglob("*")]
        digest = frame_files.digest_of(self.folder, [path for path in parts if path.is_file()])
        return {"format": f"lerobot {self.info['codebase_version']}", "camera": self.key, "digest": digest}

    def episode(self, number: int) -> dict[str, np.ndarray]:
        """The columns of one episode."""
        episode = self.episodes[number]
        for path in filter(None, (episode.table, episode.video)):
            if not path.is_file():
                raise InputError(f"{path} does not exist, though {self.folder / INFO} names it. Restore the file.")
        columns = parquet_columns(episode.table, episode.index)
        num_rows = len(next(iter(columns.values()), ()))
        place = f"{episode.table}, episode {episode.index}"
        if num_rows != episode.length or num_rows == 0:
            raise InputError(f"{place}: {num_rows} rows, but meta/ says {episode.length}. Download the data set again.")
        _check_order(place, columns.get("frame_index"))
        pixels = self._frames(episode, columns)
        if len(pixels) != num_rows:
            raise InputError(f"{episode.video}, episode {episode.index}: {len(pixels)} frames for {num_rows} rows.")
        return checked_episode(place, pixels, columns, _INDEX)

    def _frames(self, episode: LeRobotEpisode, columns: dict[str, np.ndarray]) -> np.ndarray:
        if episode.video is None:
            place = f"{episode.table}, episode {episode.index}, column {self.key!r}"
            if self.key not in columns:
                raise InputError(f"{place}: missing. Download the data set again.")
            images = [self._image(value, f"{place}, row {row}") for row, value in enumerate(columns[self.key])]
            return frame_files.stacked(images, place)
        if episode.start_seconds is None:
            return frame_files.read_video(episode.video, self.size)
        return frame_files.read_video_part(
            episode.video,
            self.size,
            start_seconds=episode.start_seconds,
            count=episode.length,
            fps=float(self.info["fps"]),
        )

    def _image(self, value: Any, place: str) -> np.ndarray:
        content = value.get("bytes") if isinstance(value, dict) else None
        if content is None:
            raise InputError(f"{place}: an image was expected, found none.")
        return self.size.decoded(content, place)

    def _video_template(self) -> str | None:
        if self.info["features"][self.key]["dtype"] == "image":
            return None
        template = self.info.get("video_path")
        if template is None:
            raise InputError(f"{self.folder / INFO}: no 'video_path', though {self.key!r} is a video.")
        return str(template)

    def _episodes_v2(self) -> list[LeRobotEpisode]:
        path = self.folder / "meta" / "episodes.jsonl"
        if not path.is_file():
            raise InputError(
                f"{path} does not exist; version {self.info['codebase_version']} has it. Download it again."
            )
        found, template = [], self._video_template()
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                entry = parse_json(line.decode())
                index, length = _number(entry["episode_index"]), _number(entry["length"])
            except (KeyError, TypeError, ValueError):
                shown = line[:60].decode(errors="replace")
                raise InputError(
                    f"{path}, line {number}: an object with episode_index and length was expected, found {shown!r}."
                ) from None
            names = {"episode_index": index, "episode_chunk": index // self.info.get("chunks_size", 1000)}
            video = None if template is None else self._path(template, video_key=self.key, **names)
            found.append(LeRobotEpisode(index, length, self._path(self.info["data_path"], **names), video))
        return found

    def _episodes_v3(self) -> list[LeRobotEpisode]:
        found, template = [], self._video_template()
        for path in sorted((self.folder / "meta" / "episodes").glob("*/*.parquet")):
            columns = parquet_columns(path)
            where = f"videos/{self.key}/"
            needed = ["episode_index", "length", "data/chunk_index", "data/file_index"]
            needed += [where + name for name in ("chunk_index", "file_index", "from_timestamp") if template is not None]
            if missing := [name for name in needed if name not in columns]:
                raise InputError(f"{path} lacks the columns {', '.join(missing)}. Download the data set again.")
            with reading(path):
                for row in range(len(columns["length"])):
                    value = {name: columns[name][row] for name in needed}
                    video, start = None, None
                    if template is not None:
                        start = float(value[where + "from_timestamp"])
                        video = self._file(template, value, where, video_key=self.key)
                    table = self._file(self.info["data_path"], value, "data/")
                    index, length = _number(value["episode_index"]), _number(value["length"])
                    found.append(LeRobotEpisode(index, length, table, video, start))
        return found

    def _file(self, template: str, value: dict[str, Any], where: str, **names: Any) -> Path:
        chunk, file = (_number(value[where + name]) for name in ("chunk_index", "file_index"))
        return self._path(template, chunk_index=chunk, file_index=file, **names)

    def _path(self, template: str, **names: Any) -> Path:
        try:
            path = PurePath(template.format(**names))
        except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
            raise InputError(f"{self.folder / INFO}: the path {template!r} cannot be filled in ({error}).") from None
        if path.is_absolute() or ".." in path.parts:
            raise InputError(
                f"{self.folder / INFO}: the path {str(path)!r} leads out of the data set. Paths in it are relative, "
                f"without '..'. Download the data set again."
            )
        return self.folder / path


def _number(value: Any) -> int:
    """The number of an episode, file or row; anything else is a `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < 2**31:
        raise ValueError(f"{value!r} counts nothing")
    return int(value)


def _check_order(place: str, frame_index: np.ndarray | None) -> None:
    if frame_index is None:
        return
    wrong = frame_index != np.arange(len(frame_index))
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(f"{place}, row {row}: frame_index {frame_index[row]} instead of {row}; rows are out of order.")
