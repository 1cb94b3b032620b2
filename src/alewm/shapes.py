"""The one legend of axis letters, and the tensor types that carry them.

The letters are the paper's wherever it has one, so that an equation and its code read alike. Features are always the
last axis; in windows, time is the second.

| letter | axis                                        | letter | axis                                     |
|--------|---------------------------------------------|--------|------------------------------------------|
| B      | batch of windows, or of parallel episodes   | Y, X   | image row, column (channels: a literal 3) |
| F      | frames in a window                          | A      | action width after frame-skip grouping   |
| D      | latent width, the largest capacity          | C      | capacities in the support                |
| S      | candidates per episode                      | H      | planning horizon in latent steps         |
| E      | elites                                      | N      | samples entering a statistic             |
| P      | random projections                          | Q      | quadrature knots                         |
| M      | models trained side by side (an ensemble)   |        |                                          |

Annotations are enforced while testing (`conftest.py` installs the checker) and cost nothing otherwise.
"""

from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

__all__ = ["FRAME_SKIP", "Bool", "Float", "Int", "Tensor", "UInt8"]

FRAME_SKIP = 5
"""Environment steps per latent step, and so actions in a block, where nothing else is said; the paper's."""
