"""The capacity network q_ψ(k | w): per-frame features in, logits over the support out."""

from torch import nn

from alewm.capacity.support import CapacitySupport, log_polynomial_prior
from alewm.shapes import Float, Tensor


class CapacitySelector(nn.Module):
    """Logits over capacities for a set of frames, whatever their number and order.

    Four pre-norm transformer blocks without position embeddings are permutation equivariant, and the mean over frames
    is permutation invariant, so the same network reads a training window and a (first, goal) pair. The head starts at
    zero weight and log-prior bias: q equals the prior before the first update, up to the rounding of its logits, which
    in bfloat16 is up to 2 % of a probability. Features are detached, because the selector must not shape the encoder.
    """

    def __init__(
        self,
        support: CapacitySupport,
        feature_dim: int,
        *,
        prior_degree: float,
        num_blocks: int = 4,
        num_heads: int = 8,
        mlp_dim: int = 768,
    ) -> None:
        super().__init__()
        self.support = support
        # Not nn.TransformerEncoder: it deep-copies one block, so that all would start with the same weights.
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    feature_dim, num_heads, mlp_dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
                )
                for _ in range(num_blocks)
            ),
            nn.LayerNorm(feature_dim),
        )
        self.head = nn.Linear(feature_dim, len(support))
        nn.init.zeros_(self.head.weight)
        self.head.bias.data.copy_(log_polynomial_prior(len(support), prior_degree))

    def forward(self, features: Float[Tensor, "B F W"]) -> Float[Tensor, "B C"]:
        """Logits whose softmax is q(k | w)."""
        logits: Tensor = self.head(self.blocks(features.detach()).mean(1))
        return logits
