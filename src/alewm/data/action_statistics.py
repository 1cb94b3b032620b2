"""Per-dimension action statistics: fitted on training episodes, saved with the model, never refitted."""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from alewm.data.splits import Splits
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from alewm.shapes import Tensor

STD_FLOOR = 1e-8
"""A dimension that never moves must not divide by zero."""

Actions = TypeVar("Actions", np.ndarray, Tensor)


@dataclass(frozen=True)
class ActionStatistics:
    """Mean and population standard deviation of each action dimension."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.std) or not all(s >= STD_FLOOR for s in self.std):
            raise InputError(
                f"Action statistics need one mean and one positive std per dimension, got mean {self.mean} and std "
                f"{self.std}."
            )

    @classmethod
    def fit(cls, actions: np.ndarray) -> "ActionStatistics":
        """The statistics of `actions` `[N, A]`; rows with a NaN are dropped."""
        complete = actions[~np.isnan(actions).any(axis=1)].astype(np.float64)
        if len(complete) == 0:
            raise InputError(f"None of the {len(actions)} action rows is free of NaN; there is nothing to fit.")
        std = np.maximum(complete.std(axis=0), STD_FLOOR)
        return cls(tuple(complete.mean(axis=0).tolist()), tuple(std.tolist()))

    @classmethod
    def of_training(cls, store: EpisodeStore, splits: Splits) -> "ActionStatistics":
        """The statistics of the actions of the training episodes of `store`."""
        return cls.fit(np.concatenate([store.actions[store.rows_of(episode)] for episode in splits.train]))

    @property
    def action_dim(self) -> int:
        """Numbers in one environment action."""
        return len(self.mean)

    def normalize(self, actions: Actions) -> Actions:
        """Z-scores of `actions` `[..., A]`; NaN becomes 0, the mean action."""
        if isinstance(actions, Tensor):
            mean, std = self._like(actions)
            return ((actions - mean) / std).masked_fill(actions.isnan(), 0.0)
        scores: np.ndarray = (actions - np.array(self.mean)) / np.array(self.std)
        scores[np.isnan(scores)] = 0.0
        return scores.astype(np.float32)

    def denormalize(self, scores: Actions) -> Actions:
        """The environment's actions of which `scores` `[..., A]` are the z-scores."""
        if isinstance(scores, Tensor):
            mean, std = self._like(scores)
            return scores * std + mean
        actions: np.ndarray = scores * np.array(self.std) + np.array(self.mean)
        return actions.astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, exact to the last bit."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ActionStatistics":
        """The statistics that `to_dict` wrote."""
        return cls(tuple(map(float, values["mean"])), tuple(map(float, values["std"])))

    def _like(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        return (
            torch.tensor(self.mean, dtype=actions.dtype, device=actions.device),
            torch.tensor(self.std, dtype=actions.dtype, device=actions.device),
        )
