"""Event files that TensorBoard reads: curves, distributions as histograms, pictures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


class TensorBoardSink:
    """A `MetricSink` that writes event files below `folder`.

    A run that goes on after `step` updates opens a further file, which begins by telling TensorBoard to forget later
    steps; what an interrupted run had written of them stays in its file and is not shown.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        has_history = folder.exists()
        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1 if has_history else None)

    def write(self, step: int, kind: str, values: Mapping[str, Any]) -> None:
        """Write one event per value, named `kind/name`."""
        for name, value in values.items():
            tag, array = f"{kind}/{name}", np.asarray(value)
            if array.ndim == 0:
                self._writer.add_scalar(tag, float(array), step)
            elif array.ndim == 1:
                self._writer.add_histogram(tag, array, step)
            else:
                self._writer.add_image(tag, array, step, dataformats="HWC")
        self._writer.flush()

    def close(self) -> None:
        """Finish the event file."""
        self._writer.close()
