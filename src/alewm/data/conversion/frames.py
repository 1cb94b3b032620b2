"""Frames of one episode, from a video or a folder of images, at the size they are stored in."""

import hashlib
import importlib
import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from alewm.data import schema
from alewm.errors import InputError, install_line, unknown_name
from alewm.files import natural_order
from alewm.resize import area_downsample


def required(module: str, path: Path) -> Any:
    """The imported `module`, which reading `path` needs; if it is not installed, the line that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        extra = "lance" if package == "lance" else "convert"
        raise InputError(
            f"Reading {path} needs the package {package!r}, which is not installed. {install_line(extra)}"
        ) from None


VIDEO_SUFFIXES = (".mp4", ".mkv", ".avi", ".mov", ".webm", ".m4v")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
MOST_PIXELS = 50_000_000
"""Of one frame: more than cameras have. A file of some kilobytes can declare far more."""
_TEXTS = (".csv", ".json", ".jsonl")

Fit = Literal["squash", "crop"]


@dataclass(frozen=True)
class FrameSize:
    """How recorded frames become square ones."""

    image_size: int | None = None
    """Pixels per side; None keeps frames as they were recorded."""

    fit: Fit = "squash"
    """What happens to frames that are not square: averaged to a square whole, or cut to the middle first."""

    def apply(self, frame: np.ndarray, place: str) -> np.ndarray:
        """`frame` uint8 [Y, X, 3] at this size; `place` says where it comes from, should it be too small."""
        if self.image_size is None:
            return frame
        height, width, _ = frame.shape
        if not 1 <= self.image_size <= min(height, width):
            raise InputError(
                f"{place}: frames of {height} x {width} pixels cannot be stored at {self.image_size} x "
                f"{self.image_size}. Choose --image-size from 1 to {min(height, width)}."
            )
        if self.fit == "crop":
            side = min(height, width)
            top, left = (height - side) // 2, (width - side) // 2
            frame = frame[top : top + side, left : left + side]
        smaller: np.ndarray = area_downsample(torch.from_numpy(np.ascontiguousarray(frame)), self.image_size).numpy()
        return smaller

    def decoded(self, content: bytes, place: str) -> np.ndarray:
        """The pixels of an image file at this size."""
        return self.apply(decode_image(content, place), place)


AS_RECORDED = FrameSize()
"""Frames as they are."""


@dataclass(frozen=True)
class CameraEpisodes:
    """The episodes of a data set, seen by one of its cameras, as a source for `alewm.data.collect.collect`."""

    folder: Path
    camera: str | None = None
    """The name of the camera; may be left out where there is one only, or one called `pixels`."""
    size: FrameSize = AS_RECORDED

    @property
    def cameras(self) -> list[str]:
        """The names of all cameras, of which there is at least one."""
        raise NotImplementedError

    @cached_property
    def key(self) -> str:
        """The camera that is looked through."""
        cameras = self.cameras
        if self.camera is not None and self.camera not in cameras:
            raise unknown_name(f"camera of {self.folder}", self.camera, cameras)
        if self.camera is None and len(cameras) > 1 and schema.PIXELS not in cameras:
            raise InputError(f"{self.folder} has several cameras; choose one with --camera: {', '.join(cameras)}.")
        return self.camera or (schema.PIXELS if schema.PIXELS in cameras else cameras[0])

    def __call__(self, seed: int, episodes: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
        """The episodes with these numbers; there is nothing for `seed` to decide."""
        return map(self.episode, episodes)

    def episode(self, number: int) -> dict[str, np.ndarray]:
        """The columns of one episode."""
        raise NotImplementedError


def image_files(folder: Path) -> list[Path]:
    """The images directly in `folder`, in natural order."""
    images = (path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    return sorted(images, key=lambda path: natural_order(path.name))


def read_images(images: Iterable[Path], size: FrameSize, place: str) -> np.ndarray:
    """The `images` as frames [T, Y, X, 3]; `place` says where they are."""
    return stacked([size.decoded(path.read_bytes(), str(path)) for path in images], place)


def decode_image(content: bytes, place: str) -> np.ndarray:
    """An image file's pixels, uint8 [Y, X, 3]; transparency is dropped, 8-bit grey becomes three equal channels."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # refused below, by a limit of our own
            image = Image.open(io.BytesIO(content))
        with image:
            check_pixels(image.height, image.width, place)
            if image.mode.startswith(("I", "F")):
                # Pillow would cut every value at 255: a depth image would become white.
                raise InputError(
                    f"{place}: one channel of more than 8 bits (Pillow's mode {image.mode!r}), as depth images have. "
                    f"Scale all images to 8 bits per channel first, by the same factor."
                )
            return np.array(image.convert("RGB"))
    except Image.DecompressionBombError as error:
        raise InputError(f"{place}: {error} Replace it and repeat the command.") from None
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        # Pillow names the memory that it was given, which tells a person nothing.
        reason = "no known format" if isinstance(error, UnidentifiedImageError) else error
        raise InputError(
            f"{place}: not an image that can be read ({reason}). Replace it and repeat the command."
        ) from None


def check_pixels(height: int, width: int, place: str) -> None:
    """Refuse a frame that is too large, before memory is taken for it."""
    if height * width > MOST_PIXELS:
        raise InputError(
            f"{place}: {height} x {width} pixels. Frames of at most {MOST_PIXELS:,} pixels are read; make it smaller."
        )


def read_video(path: Path, size: FrameSize) -> np.ndarray:
    """All frames of a video [T, Y, X, 3]."""
    return stacked([size.apply(frame, str(path)) for _, frame in _decoded(path)], str(path))


def read_video_part(path: Path, size: FrameSize, *, start_seconds: float, count: int, fps: float) -> np.ndarray:
    """The `count` frames of a video from `start_seconds` on, each checked to be where `fps` puts it."""
    frames = []
    begin = start_seconds - 0.5 / fps
    wanted = (entry for entry in _decoded(path, max(0.0, begin)) if entry[0] >= begin)
    for i, (seconds, frame) in enumerate(islice(wanted, count)):
        expected = start_seconds + i / fps
        if abs(seconds - expected) > 0.5 / fps:
            raise InputError(
                f"{path}: frame {i} of the episode was expected at {expected:.3f} s ({fps:g} fps), the next one "
                f"found is at {seconds:.3f} s. The video lacks frames; record or download it again."
            )
        frames.append(size.apply(frame, str(path)))
    return stacked(frames, str(path))


def digest_of(root: Path, paths: Iterable[Path]) -> str:
    """Letters that change with the name or size of a file, and with what a table or description says."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(root)} {path.stat().st_size};".encode())
        if path.suffix.lower() in _TEXTS:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def video_fps(path: Path) -> float | None:
    """Frames per second that a video says it has."""
    with _opened(path) as container:
        rate = container.streams.video[0].average_rate
    return None if rate is None else float(rate)


def stacked(frames: list[np.ndarray], place: str) -> np.ndarray:
    """`frames` as one array; none at all make an array without rows."""
    for number, frame in enumerate(frames):
        if frame.shape != frames[0].shape:
            (height, width, _), (first_height, first_width, _) = frame.shape, frames[0].shape
            raise InputError(
                f"{place}: frame {number} has {height} x {width} pixels, the first {first_height} x {first_width}. "
                f"Give --image-size to make them equal."
            )
    return np.stack(frames) if frames else np.empty((0, 1, 1, 3), np.uint8)


def _opened(path: Path) -> Any:
    """The container of a video, by a package that says nothing of its types."""
    av = required("av", path)
    if not path.is_file():
        raise InputError(f"{path} does not exist. Restore the video and repeat the command.")
    try:
        container = av.open(str(path), metadata_errors="replace")
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise InputError(
            f"{path}: not a video that can be read ({error}). Replace it and repeat the command."
        ) from None
    if not container.streams.video:
        container.close()
        raise InputError(f"{path} has no picture, only sound or nothing. Replace it and repeat the command.")
    return container


def _decoded(path: Path, start_seconds: float = 0.0) -> Iterator[tuple[float, np.ndarray]]:
    """Time and pixels of every frame from the last key frame before `start_seconds` on."""
    av = required("av", path)
    number = 0
    with _opened(path) as container:
        stream = container.streams.video[0]
        try:
            if start_seconds:
                container.seek(int(start_seconds / stream.time_base), stream=stream)
            for frame in container.decode(stream):
                check_pixels(frame.height, frame.width, str(path))
                seconds = float("nan") if frame.pts is None else float(frame.pts * stream.time_base)
                yield seconds, frame.to_ndarray(format="rgb24")
                number += 1
        except av.error.FFmpegError as error:
            raise InputError(f"{path}: damaged after {number} frames ({error}). Record or download it again.") from None
