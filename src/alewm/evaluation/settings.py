"""Settings of an evaluation, and the folder of its results."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from alewm.config import ADDED_LATER, differences, from_dict, to_dict
from alewm.errors import InputError
from alewm.evaluation.success import BUDGET
from alewm.files import read_if_there
from alewm.planning.planner import PlanningConfig
from alewm.shapes import FRAME_SKIP

Split = Literal["train", "validation", "test"]

EVALUATIONS = "evaluations"
"""The folder below a run's for results of other than the default settings."""

OWN_DYNAMICS = "own"
"""Plan with the model's own predictor."""


@dataclass(frozen=True)
class EvaluationSettings:
    """What is planned, and how."""

    split: Split = "test"
    """Which episodes the pairs come from."""
    num_episodes: int | None = None
    """How many pairs, the first ones; None for all that are stored."""
    budget: int = BUDGET
    """Environment steps per episode."""
    planning: PlanningConfig = field(default_factory=PlanningConfig)
    """The planner."""
    reference_search: bool = False
    """Use the reference search in float32, even if a faster one is available."""
    data_set: str = ""
    """Whose pairs, of a run that learned from several data sets; empty for a run of one."""
    dynamics: str = OWN_DYNAMICS
    """What imagines the future: `own` (the model's predictor), `distilled` (those beside the run), or their folder."""
    pairs_per_episode: int = field(default=1, metadata=ADDED_LATER)
    """Pairs of each episode; above one they are others than the single ones (`data.splits`)."""
    drawing: Literal["as-trained", "mujoco", "batched"] = field(default="as-trained", metadata=ADDED_LATER)
    """Who draws what the model sees: as the data it was trained on say, or one of the two."""

    def __post_init__(self) -> None:
        if self.pairs_per_episode < 1:
            raise InputError(f"--pairs-per-episode must be at least 1, got {self.pairs_per_episode}.")
        if self.num_episodes is not None and self.num_episodes < 1:
            raise InputError(f"--episodes must be at least 1, got {self.num_episodes}.")

    def at_frame_skip(self, frame_skip: int) -> "EvaluationSettings":
        """These settings for a model with this frame skip."""
        return replace(self, planning=self.planning.at_frame_skip(frame_skip))

    def most_plans_per_episode(self) -> int:
        """Plans of an episode that does not end before its budget does."""
        return -(-self.budget // (self.planning.executed_blocks * (self.planning.frame_skip or FRAME_SKIP)))

    def identity(self) -> dict[str, Any]:
        """All that can change an outcome, as plain JSON values."""
        values = to_dict(self)
        del values["planning"]["episodes_per_batch"]  # bounds memory; changes nothing but rounding
        values["planning"]["portable_noise"] = False  # an option of the past, which the records of evaluations name
        values["planning"]["frame_skip"] = self.planning.frame_skip or FRAME_SKIP
        if not self.data_set:
            del values["data_set"]
        if self.dynamics == OWN_DYNAMICS:
            del values["dynamics"]
        else:
            values["dynamics"] = Path(self.dynamics).name  # which networks they are, their hashes say
        return values

    @classmethod
    def of(cls, identity: Mapping[str, Any]) -> "EvaluationSettings":
        """The settings whose `identity` a result has kept, among other values."""
        known = {each.name: identity[each.name] for each in fields(cls) if each.name in identity}
        planning = {name: value for name, value in known["planning"].items() if name != "portable_noise"}
        return from_dict(cls, {**known, "planning": planning})

    def name(self) -> str:
        """A folder name that says in what these settings differ from the default ones; empty if in nothing."""
        usual, planning = EvaluationSettings(), self.planning
        cem, usual_cem = planning.cem, usual.planning.cem
        parts = {
            self.data_set: self.data_set != usual.data_set,
            self.split: self.split != usual.split,
            f"{self.pairs_per_episode}-per-episode": self.pairs_per_episode != usual.pairs_per_episode,
            f"{self.num_episodes}-episodes": self.num_episodes is not None,
            f"budget-{self.budget}": self.budget != usual.budget,
            f"capacity-{planning.capacity}": planning.capacity != usual.planning.capacity,
            f"goal-{planning.goal_cost}": planning.goal_cost != usual.planning.goal_cost,
            f"search-{planning.search}": planning.search != usual.planning.search,
            f"cem-{cem.num_candidates}x{cem.num_iterations}-{cem.num_elites}": cem != usual_cem,
            f"horizon-{planning.horizon}-{planning.executed_blocks}": (planning.horizon, planning.executed_blocks)
            != (usual.planning.horizon, usual.planning.executed_blocks),
            f"seed-{planning.seed}": planning.seed != usual.planning.seed,
            "reference-search": self.reference_search,
            f"drawn-by-{self.drawing}": self.drawing != usual.drawing,
            f"dynamics-{Path(self.dynamics).name}": self.dynamics != usual.dynamics,
        }
        return "_".join(part.replace(":", "-").replace(",", "-") for part, is_unusual in parts.items() if is_unusual)


def results_folder(
    run: Path, settings: EvaluationSettings, step: int, *, is_finished: bool, is_shared: bool = False
) -> Path:
    """Where results belong: the default settings of a finished run in the run's folder, others below `evaluations/`.

    The folder of a shared model holds what was published with it; whatever is evaluated again is below `evaluations/`.
    """
    parts = [settings.name(), "" if is_finished else f"step-{step:08d}"]
    name = "_".join(part for part in parts if part) or ("again" if is_shared else "")
    return run / EVALUATIONS / name if name else run


def check_same_settings(result_path: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """What `result_path` holds already; results of other settings are refused, never replaced."""
    found = read_if_there(result_path)
    if "evaluated" in found and (changed := differences(asked, found["evaluated"])):
        raise InputError(
            f"{result_path} holds results of other settings:\n  " + "\n  ".join(changed) + "\nGive a folder with --out."
        )
    return found
