"""Which runs make up the study: the default comparison, the controls, and the paper's search grids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from alewm.errors import unknown_name
from alewm.experiments.oscillator.config import OscillatorRun
from alewm.ranges import check_seeds

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
