"""Which prefix lengths a capacity stands for while training: its own, or any that ends in its block."""

from dataclasses import dataclass
from functools import cached_property

from alewm.capacity.prefix import prefix_masks
from alewm.capacity.prior import survival
from alewm.capacity.support import CapacitySupport
from alewm.shapes import Float, Tensor


@dataclass(frozen=True)
class PrefixLengths:
    """The prefix lengths met in training, and how probable each is.

    Where they are `drawn`, capacity k_c stands for a length uniform over its block k_(c-1) + 1, ..., k_c, so that the
    probability of being active falls linearly through a block instead of all at once at its end.
    """

    support: CapacitySupport
    """The capacities to choose from."""
    drawn: bool = False
    """Whether a length is drawn from the chosen capacity's block; otherwise it is the capacity."""

    @cached_property
    def lengths(self) -> CapacitySupport:
        """All lengths there are: the capacities, or 1, ..., D."""
        return CapacitySupport.every(self.support.latent_dim) if self.drawn else self.support

    def probabilities(self, q: Float[Tensor, "*batch C"]) -> Float[Tensor, "*batch K"]:
        """Probability of each of the `lengths` where capacities are distributed as `q`."""
        if not self.drawn:
            return q
        _, block = self._blocks(q)
        return q @ (block / block.sum(-1, keepdim=True))

    def survival(self, q: Float[Tensor, "*batch C"]) -> Float[Tensor, "*batch D"]:
        """ρ^j = Pr(length ≥ j) for every coordinate j."""
        return survival(self.probabilities(q), self.lengths)

    def masks(self, place: Float[Tensor, "B"]) -> Float[Tensor, "B C D"]:
        """Each window's prefix mask per capacity, of length k_(c-1) + 1 + ⌊v b_c⌋ for its `place` v, uniform in [0, 1).

        b_c is the size of the block. All capacities of a window share its place, of which one is used.
        """
        before, block = self._blocks(place)
        steps_into_block = block.cumsum(-1) - 1
        is_reached = steps_into_block <= place[:, None, None] * block.sum(-1, keepdim=True)
        return before + block * is_reached

    def _blocks(self, like: Tensor) -> tuple[Float[Tensor, "C D"], Float[Tensor, "C D"]]:
        """Masks of the coordinates before each capacity's block, and of the block."""
        masks = prefix_masks(self.support, device=like.device, dtype=like.dtype)
        before = masks.roll(1, 0)
        before[0] = 0
        return before, masks - before
