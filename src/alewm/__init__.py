"""Latent world models that learn how much of themselves to use.

Public names load on first use, so that `import alewm` and `alewm --help` stay fast.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME_OF = {
    "CEM": "alewm.planning.cem",
    "CapacitySelector": "alewm.capacity.selector",
    "CapacitySupport": "alewm.capacity.support",
    "MixSIGReg": "alewm.regularizers.mix_sigreg",
    "SIGReg": "alewm.regularizers.sigreg",
}

__all__ = ["CEM", "CapacitySelector", "CapacitySupport", "MixSIGReg", "SIGReg", "__version__"]


def __getattr__(name: str) -> Any:
    """The public object called `name`, imported now."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'alewm' has no attribute {name!r}; it has {', '.join(sorted(_HOME_OF))}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
