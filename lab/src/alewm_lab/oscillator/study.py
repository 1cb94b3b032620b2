"""What is trained: a run of the study, the default comparison, the controls, and the paper's search grids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from alewm.capacity.support import CapacitySupport
from alewm.config import check_seeds
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
        return "-".join([*parts, f"seed{self.seed}"])

    @property
    def trains_alike(self) -> tuple[object, ...]:
        """Runs that agree in this can train side by side in one batched computation."""
        return self.method, self.control, self.latent_dim, self.epochs, self.batch_size, self.num_projections


Variant = Literal[
    "lewm", "alewm", "alewm-paper", "remedies", "prior-frozen", "marginal", "alewm-sigreg", "nested-dropout"
]
DEFAULT_VARIANTS: tuple[Variant, ...] = ("lewm", "alewm", "alewm-paper")

LEWM = (
    OscillatorRun("lewm", latent_dim=4, reg_weight=0.005),
    OscillatorRun("lewm", latent_dim=6, reg_weight=0.005),
    OscillatorRun("lewm", latent_dim=8, reg_weight=0.0075),
)
"""The paper's selected SIGReg weight for each LeWM width it reports."""
PAPER_ALEWM = OscillatorRun("alewm", reg_weight=0.01, prior_degree=-1.5, selector_rate=1.0)
"""The paper's selected ALeWM; the selector's learning rate is not stated, so it is the model's."""
OUR_ALEWM = OscillatorRun(
    "alewm", reg_weight=0.01, prior_degree=-1.0, selector_rate=0.3, selector_delay=0.125, kl_weight=0.003, epochs=400
)
"""The configuration we recommend; `docs/method.md` says why it differs."""

REMEDIES = (
    replace(PAPER_ALEWM, control="prior-frozen"),
    replace(PAPER_ALEWM, control="marginal"),
    replace(PAPER_ALEWM, selector_rate=0.3),
    replace(PAPER_ALEWM, selector_delay=0.125),
    replace(PAPER_ALEWM, selector_delay=0.5),
    replace(PAPER_ALEWM, kl_weight=0.01),
    replace(PAPER_ALEWM, kl_weight=0.1),
)
"""The paper's setting with one thing changed about its selector; visual models have the same changes."""

GRID_WEIGHTS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 5.0)
GRID_WIDTHS = (2, 3, 4, 5, 6, 7, 8)
GRID_DEGREES = (-3.0, -1.5, -0.5, 0.0, 0.5, 1.5, 3.0)


@dataclass(frozen=True)
class Study:
    """A set of runs, in the order in which they are reported."""

    runs: tuple[OscillatorRun, ...]

    def groups(self, max_models: int) -> list[list[OscillatorRun]]:
        """The runs in batches that can train side by side, the costly ones first."""
        alike: dict[tuple[object, ...], list[OscillatorRun]] = {}
        for run in self.runs:
            alike.setdefault(run.trains_alike, []).append(run)
        chunks = [runs[i : i + max_models] for runs in alike.values() for i in range(0, len(runs), max_models)]
        return sorted(chunks, key=lambda runs: -len(runs) * len(runs[0].support) * runs[0].epochs)


def default_study(seeds: Sequence[int], epochs: int | None = None, variants: Iterable[str] = DEFAULT_VARIANTS) -> Study:
    """LeWM at the paper's three widths, ALeWM as we and as the paper configure it, and any controls asked for.

    Without `epochs` every setting trains for its own number: the paper's 200, and 400 for ours.
    """
    settings = [run for variant in dict.fromkeys(variants) for run in _of_variant(variant)]
    return _over_seeds(settings, seeds, epochs)


def _of_variant(variant: str) -> Sequence[OscillatorRun]:
    match variant:
        case "lewm":
            return LEWM
        case "alewm":
            return (OUR_ALEWM,)
        case "alewm-paper":
            return (PAPER_ALEWM,)
        case "remedies":
            return REMEDIES
        case "prior-frozen" | "marginal":
            return (replace(OUR_ALEWM, control=variant),)
        case "alewm-sigreg" | "nested-dropout":
            return (replace(OUR_ALEWM, method=variant),)
        case _:
            raise unknown_name("method", variant, get_args(Variant))


def sweep_study(seeds: Sequence[int], epochs: int | None = None) -> Study:
    """The paper's grids: 12 weights x 7 widths of LeWM, 12 weights x 7 prior degrees of ALeWM."""
    lewm = [OscillatorRun("lewm", latent_dim=d, reg_weight=weight) for d in GRID_WIDTHS for weight in GRID_WEIGHTS]
    alewm = [
        replace(PAPER_ALEWM, reg_weight=weight, prior_degree=degree)
        for degree in GRID_DEGREES
        for weight in GRID_WEIGHTS
    ]
    return _over_seeds([*lewm, *alewm], seeds, epochs)


def _over_seeds(settings: Sequence[OscillatorRun], seeds: Sequence[int], epochs: int | None) -> Study:
    check_seeds(seeds)
    if epochs is not None:
        settings = [replace(run, epochs=epochs) for run in settings]
    return Study(tuple(replace(run, seed=seed) for run in settings for seed in seeds))
