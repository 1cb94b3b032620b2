"""World models that choose how many latent dimensions to plan with.

Use a model
    load(path_or_hub_id)      a trained model: encode, imagine, capacity, plan, policy
    Policy                    acts towards a goal image: reset(goal), act(frame)
    Planner, PlanningConfig   plans for many images at once, and its settings
    CEM, CEMConfig            the search, over any scoring function

Make one
    collect(task, out)        record episodes of a task into a file
    train(preset, data)       train a model from recorded episodes
    evaluate(run)             closed-loop success on held-out pairs
    distill(run)              small dynamics for fast planning
    decode(run)               a decoder, to see what a latent holds

Read and write episodes
    EpisodeStore              store = EpisodeStore.open(path); len(store), store[0].pixels
    StoreWriter               write episodes of your own

Build with the parts
    MixSIGReg, SIGReg         the regularizers, each on its own
    WorldModel, WorldModelConfig, CapacitySelector, CapacitySupport

    InputError                what bad input raises: expected, found, what to do

>>> import alewm
>>> model = alewm.load("pretrained/two-room-tiny")
>>> policy = model.policy(goal_image)            # uint8 [Y, X, 3]
>>> action = policy.act(image_now).action

help(alewm.load) and so on say more. The same verbs are on the command line: alewm --help.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from alewm.api import collect as collect
    from alewm.api import evaluate as evaluate
    from alewm.api import load as load
    from alewm.api import train as train
    from alewm.capacity.selector import CapacitySelector as CapacitySelector
    from alewm.capacity.support import CapacitySupport as CapacitySupport
    from alewm.data.store import EpisodeStore as EpisodeStore
    from alewm.data.writer import StoreWriter as StoreWriter
    from alewm.errors import InputError as InputError
    from alewm.evaluation.decoder import decode as decode
    from alewm.evaluation.distill_run import distill as distill
    from alewm.model.world_model import WorldModel as WorldModel
    from alewm.model.world_model import WorldModelConfig as WorldModelConfig
    from alewm.planning.planner import Planner as Planner
    from alewm.planning.planner import PlanningConfig as PlanningConfig
    from alewm.planning.policy import Policy as Policy
    from alewm.planning.search import CEM as CEM
    from alewm.planning.search import CEMConfig as CEMConfig
    from alewm.regularizers.sigreg import MixSIGReg as MixSIGReg
    from alewm.regularizers.sigreg import SIGReg as SIGReg

# There is no __all__, on purpose: with one, help(alewm) would be thousands of lines of inherited methods.
_HOME_OF = {
    "CEM": "alewm.planning.search",
    "CEMConfig": "alewm.planning.search",
    "CapacitySelector": "alewm.capacity.selector",
    "CapacitySupport": "alewm.capacity.support",
    "EpisodeStore": "alewm.data.store",
    "InputError": "alewm.errors",
    "MixSIGReg": "alewm.regularizers.sigreg",
    "Planner": "alewm.planning.planner",
    "PlanningConfig": "alewm.planning.planner",
    "Policy": "alewm.planning.policy",
    "SIGReg": "alewm.regularizers.sigreg",
    "StoreWriter": "alewm.data.writer",
    "WorldModel": "alewm.model.world_model",
    "WorldModelConfig": "alewm.model.world_model",
    "collect": "alewm.api",
    "decode": "alewm.evaluation.decoder",
    "distill": "alewm.evaluation.distill_run",
    "evaluate": "alewm.api",
    "load": "alewm.api",
    "train": "alewm.api",
}


def __getattr__(name: str) -> object:
    """The public object called `name`, imported on first use so that `import alewm` and `alewm --help` stay fast."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'alewm' has no attribute {name!r}; it has {', '.join(sorted(_HOME_OF))}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*sorted(_HOME_OF), "__version__"]
