"""Lossless frame compression, one frame at a time: what the writer does (reading is `alewm.data.decoders`).

`gzip` is the filter every HDF5 build has. It always goes through Python's own zlib, so that what is installed beside it
never changes a file. `zstd` makes Two-Room files a quarter smaller but takes longer to write; it needs the packages of
the extra `zstd`, and its bytes are those of one version of that library, which a continued file must match. One frame
per chunk: runs of frames compress better, but a window takes four frames, five rows apart, and would decode the runs
they lie in.
"""

import importlib
import zlib
from dataclasses import dataclass
from threading import local
from typing import Any, Literal, get_args

from alewm.errors import InputError, unknown_name

Filter = Literal["gzip", "zstd"]

ZSTD_FILTER = 32015
"""The number under which HDF5 knows Zstandard."""

ZSTD_INSTALL = "pip install 'alewm[zstd]'"

DEFAULT_LEVELS = {"gzip": 6, "zstd": 15}
"""gzip: Two-Room files within a tenth of level 9's size. zstd: level 10 gave 3,810 bytes a row, 15 gives 3,457."""

_HIGHEST_LEVELS = {"gzip": 9, "zstd": 19}

# A frame is a calm background and a few busy rows. Short Huffman blocks (a small symbol buffer) give each its own code
# and save 3 % at no cost in time; the bytes stay plain zlib, whatever the reader.
_MEMORY_LEVEL = 5
_WINDOW_BITS = 15


@dataclass(frozen=True)
class Compression:
    """How the frames of a file are compressed."""

    filter: str = "gzip"
    """gzip or zstd."""

    level: int = 0
    """From 1 (fast) to 9 for gzip and 19 for zstd (small); 0 for the default one."""

    def __post_init__(self) -> None:
        if self.filter not in get_args(Filter):
            raise unknown_name("filter", self.filter, get_args(Filter))
        highest = _HIGHEST_LEVELS[self.filter]
        if self.level == 0:
            object.__setattr__(self, "level", DEFAULT_LEVELS[self.filter])
        if not 1 <= self.level <= highest:
            raise InputError(f"The {self.filter} level is 1 (fast) to {highest} (small), got {self.level}.")

    def compress(self, frame: bytes | memoryview) -> bytes:
        """`frame` as the filter's stream."""
        if self.filter == "gzip":
            compressor = zlib.compressobj(self.level, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL)
            return compressor.compress(frame) + compressor.flush()
        return _zstd_compressor(self.level).compress(frame)  # type: ignore[no-any-return]

    def check_installed(self) -> None:
        """Refuse a filter whose packages are missing, with the line that installs them."""
        if self.filter == "zstd":
            for package in ("zstandard", "hdf5plugin"):
                try:
                    importlib.import_module(package)  # importing hdf5plugin registers the filter with HDF5
                except ImportError:
                    raise InputError(
                        f"The filter 'zstd' needs the package {package!r}, which is not installed. "
                        f"Install it: {ZSTD_INSTALL}"
                    ) from None

    def dataset_options(self) -> dict[str, Any]:
        """What h5py's `create_dataset` must be told."""
        if self.filter == "gzip":
            return {"compression": "gzip", "compression_opts": self.level}
        return {"compression": ZSTD_FILTER, "compression_opts": (self.level,)}

    def identity(self) -> dict[str, Any]:
        """All that decides the bytes."""
        if self.filter == "gzip":
            return {"level": self.level}
        return {"filter": self.filter, "level": self.level, "zstd": list(_zstandard().ZSTD_VERSION)}


_threads = local()


def _zstd_compressor(level: int) -> Any:
    """This thread's own: compressors are not safe to share, and making one for each frame would cost more than it."""
    known: dict[int, Any] = _threads.__dict__.setdefault("compressors", {})
    if level not in known:
        known[level] = _zstandard().ZstdCompressor(level=level)
    return known[level]


def _zstandard() -> Any:
    return importlib.import_module("zstandard")
