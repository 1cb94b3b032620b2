"""One training run of the study, complete and immutable."""

from dataclasses import dataclass
from typing import Literal, get_args

from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError, unknown_name

Method = Literal["lewm", "alewm", "alewm-sigreg", "nested-dropout"]
Control = Literal["none", "prior-frozen", "marginal"]
MAX_WIDTH = 8
"""ALeWM's latent width, twice the number of factors."""
TRUE_FACTORS = 4


@dataclass(frozen=True)
class OscillatorRun:
    """What one model of the study is and how it is trained; the defaults are the paper's."""

    method: Method
    control: Control = "none"
    """For ALeWM: `prior-frozen` never updates the selector; `marginal` averages the prediction loss over all capacities
    with weights q instead of sampling one."""
    latent_dim: int = MAX_WIDTH
    """d; every prefix 1 ... d is supported."""
    seed: int = 0
    """Of trajectories, initialisation, batches, directions and Gumbel noise."""
    reg_weight: float = 0.01
    """λ, the weight of SIGReg or MixSIGReg."""
    prior_degree: float = -1.5
    """α, the degree of the polynomial prior."""
    selector_rate: float = 1.0
    """s_q, the selector's learning rate as a multiple of the model's."""
    selector_delay: float = 0.0
    """Share of training for which q is held at the prior before the selector starts to learn; not in the paper."""
    kl_weight: float = 0.0
    """Weight of KL(q || π_0), averaged over sequences; not in the paper."""
    anneal: bool = False
    """Whether the learning rate falls to zero along a cosine; the paper states a constant one."""
    epochs: int = 200
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    clip_norm: float = 1.0
    num_projections: int = 64

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise unknown_name("method", self.method, get_args(Method))
        if self.control not in get_args(Control):
            raise unknown_name("control", self.control, get_args(Control))
        if self.control != "none" and self.method != "alewm":
            raise InputError(f"The control {self.control!r} belongs to alewm, not to {self.method}.")
        if not 0 <= self.selector_delay < 1:
            raise InputError(f"The selector's delay is a share of training in [0, 1), got {self.selector_delay}.")
        for name in ("latent_dim", "epochs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be positive, got {getattr(self, name)}.")
        if self.batch_size < 2:
            raise InputError(f"batch_size must be at least 2, got {self.batch_size}.")

    @property
    def chooses_capacity(self) -> bool:
        """Whether a prefix is masked at all."""
        return self.method != "lewm"

    @property
    def learns_capacity(self) -> bool:
        """Whether the selector is trained."""
        return self.method in ("alewm", "alewm-sigreg") and self.control != "prior-frozen"

    @property
    def support(self) -> CapacitySupport:
        """Every prefix for methods that choose, the whole latent for LeWM."""
        return (
            CapacitySupport.every(self.latent_dim) if self.chooses_capacity else CapacitySupport.full(self.latent_dim)
        )

    @property
    def name(self) -> str:
        """Short and unique within a study."""
        parts = [self.method, *([self.control] if self.control != "none" else []), f"d{self.latent_dim}"]
        parts.append(f"lambda{self.reg_weight:g}")
        if self.chooses_capacity:
            parts.append(f"alpha{self.prior_degree:g}")
        if self.learns_capacity:
            parts.append(f"rate{self.selector_rate:g}")
        if self.learns_capacity and self.selector_delay:
            parts.append(f"delay{self.selector_delay:g}")
        if self.kl_weight:
            parts.append(f"kl{self.kl_weight:g}")
        if self.anneal:
            parts.append("annealed")
        return "-".join([*parts, f"seed{self.seed}"])

    @property
    def trains_alike(self) -> tuple[object, ...]:
        """Runs that agree in this can train side by side in one batched computation."""
        return (
            self.method,
            self.control,
            self.latent_dim,
            self.anneal,
            self.epochs,
            self.batch_size,
            self.num_projections,
        )
