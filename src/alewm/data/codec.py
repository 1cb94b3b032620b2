"""Lossless frame compression: deflate, which every HDF5 build reads.

Writing always uses Python's own zlib, so that what is installed beside it never changes a file. Reading uses the
fastest inflater that is installed, because all of them return the same bytes.
"""

import importlib
import zlib
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

DEFAULT_LEVEL = 6
"""Within a tenth of level 9's size on Two-Room frames for a quarter of its time."""

# A frame is a calm background and a few busy rows. Short Huffman blocks (a small symbol buffer) give each its own code
# and save 3 % at no cost in time; the bytes stay plain zlib, whatever the reader.
_MEMORY_LEVEL = 5
_WINDOW_BITS = 15

FAST_INFLATERS = ("zlib_ng.zlib_ng", "isal.isal_zlib")
"""Modules with zlib's interface, fastest first; each is optional."""


def deflate(frame: bytes | memoryview, level: int = DEFAULT_LEVEL) -> bytes:
    """`frame` as a zlib stream."""
    compressor = zlib.compressobj(level, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL)
    return compressor.compress(frame) + compressor.flush()


class Inflater(NamedTuple):
    """A decompressor and the name of the library it came from."""

    library: str
    inflate: Callable[[bytes | memoryview, int], bytes]
    """Stream and expected size in bytes -> the bytes."""

    errors: tuple[type[Exception], ...]
    """What `inflate` raises on damage."""


def make_inflater(module_name: str) -> Inflater:
    """The inflater of the module `module_name`, which has zlib's interface."""
    module = importlib.import_module(module_name)
    decompress = module.decompress

    def inflate(stream: bytes | memoryview, size: int) -> bytes:
        # The third argument is the first size of the output buffer: given exactly, nothing is ever copied to grow it.
        return decompress(stream, _WINDOW_BITS, size)  # type: ignore[no-any-return]

    return Inflater(module_name.partition(".")[0], inflate, (module.error, EOFError))


@cache
def fastest_inflater() -> Inflater:
    """The first of `FAST_INFLATERS` that is installed, else Python's zlib."""
    for module_name in FAST_INFLATERS:
        try:
            return make_inflater(module_name)
        except ImportError:
            continue
    return make_inflater("zlib")
