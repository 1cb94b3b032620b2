"""World models that choose how many latent dimensions to plan with.

Public names load on first use, so that `import alewm` and `alewm --help` stay fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from alewm.capacity.selector import CapacitySelector
    from alewm.capacity.support import CapacitySupport
    from alewm.data.store import EpisodeStore
    from alewm.data.writer import StoreWriter
    from alewm.errors import InputError
    from alewm.evaluation.distill_run import distill
    from alewm.model.world_model import WorldModel, WorldModelConfig
    from alewm.planning.cem import CEM, CEMConfig
    from alewm.planning.planner import Planner, PlanningConfig
    from alewm.regularizers.mix_sigreg import MixSIGReg
    from alewm.regularizers.sigreg import SIGReg

_HOME_OF = {
    "CEM": "alewm.planning.cem",
    "CEMConfig": "alewm.planning.cem",
    "CapacitySelector": "alewm.capacity.selector",
    "CapacitySupport": "alewm.capacity.support",
    "EpisodeStore": "alewm.data.store",
    "InputError": "alewm.errors",
    "MixSIGReg": "alewm.regularizers.mix_sigreg",
    "Planner": "alewm.planning.planner",
    "PlanningConfig": "alewm.planning.planner",
    "SIGReg": "alewm.regularizers.sigreg",
    "StoreWriter": "alewm.data.writer",
    "WorldModel": "alewm.model.world_model",
    "WorldModelConfig": "alewm.model.world_model",
    "distill": "alewm.evaluation.distill_run",
}

__all__ = [
    "CEM",
    "CEMConfig",
    "CapacitySelector",
    "CapacitySupport",
    "EpisodeStore",
    "InputError",
    "MixSIGReg",
    "Planner",
    "PlanningConfig",
    "SIGReg",
    "StoreWriter",
    "WorldModel",
    "WorldModelConfig",
    "__version__",
    "distill",
]


def __getattr__(name: str) -> object:
    """The public object called `name`, imported now."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'alewm' has no attribute {name!r}; it has {', '.join(sorted(_HOME_OF))}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
