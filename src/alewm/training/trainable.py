"""What training needs of a configuration besides valid fields: parts that fit each other, and the windows."""

from alewm.data.windows import WindowShape
from alewm.errors import InputError
from alewm.training.config import RunConfig
from alewm.training.losses import check_fit


def check_trainable(config: RunConfig) -> None:
    """Refuses a model that cannot be trained with its objective, or on windows of the usual length.

    Not part of the configuration itself: a model from elsewhere that sees fewer positions can still be planned with.
    """
    check_fit(config.objective, config.model)
    positions, seen = WindowShape().num_frames - 1, config.model.predictor.context_length
    if seen < positions:
        raise InputError(
            f"model.predictor.context_length must be at least {positions}, the positions of a training window from "
            f"which the next is predicted; got {seen}."
        )
