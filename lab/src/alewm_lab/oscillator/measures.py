"""What is measured on trained models, a JSON-able record per run: linear recovery of the state, alignment with it.

By these records hyperparameters are chosen on validation data, as the paper's search does.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import torch

from alewm.capacity.support import polynomial_prior, survival
from alewm.shapes import Float, Tensor
from alewm.training.validation import covariance_spectrum, masked_variance, rank_of_spectrum
from alewm_lab.oscillator.models import OscillatorModels
from alewm_lab.oscillator.study import TRUE_FACTORS, OscillatorRun
from alewm_lab.oscillator.training import History
from alewm_lab.oscillator.world import Trajectories

Record = dict[str, Any]

_RIDGE = 1e-6
"""Added to the diagonal of what is inverted."""


def recovery_by_prefix(
    train_latent: Float[Tensor, "n D"],
    train_state: Float[Tensor, "n R"],
    latent: Float[Tensor, "m D"],
    state: Float[Tensor, "m R"],
) -> list[float]:
    """R² of a ridge probe from the first K coordinates, for K = 1 ... D, averaged over the state's factors.

    The probe is fitted on standardised training pairs and applied unchanged to the others.
    """
    y_mean, y_std = train_latent.double().mean(0), train_latent.double().std(0, correction=0).clamp(min=1e-12)
    x_mean, x_std = train_state.double().mean(0), train_state.double().std(0, correction=0)
    y, x = (train_latent.double() - y_mean) / y_std, (train_state.double() - x_mean) / x_std
    test_y, test_x = (latent.double() - y_mean) / y_std, state.double()
    total = (test_x - test_x.mean(0)).square().sum(0)
    recovered = []
    for k in range(1, y.shape[1] + 1):
        gram = y[:, :k].T @ y[:, :k] + _RIDGE * torch.eye(k, dtype=torch.float64)
        probe = torch.linalg.solve(gram, y[:, :k].T @ x)
        predicted = (test_y[:, :k] @ probe) * x_std + x_mean
        recovered.append(float((1 - (test_x - predicted).square().sum(0) / total).mean()))
    return recovered


class WhitenedProcrustes:
    """The orthogonal map from a whitened latent prefix to the whitened state, fitted on training pairs."""

    def __init__(self, latent: Float[Tensor, "n R"], state: Float[Tensor, "n R"]) -> None:
        self.latent_mean, self.latent_whitener = _whitening(latent.double())
        self.state_mean, self.state_whitener = _whitening(state.double())
        left, _, right = torch.linalg.svd(self._white_latent(latent).T @ self.white_state(state))
        self.rotation: Tensor = left @ right

    def _white_latent(self, latent: Tensor) -> Tensor:
        return (latent.double() - self.latent_mean) @ self.latent_whitener

    def white_state(self, state: Float[Tensor, "m R"]) -> Float[Tensor, "m R"]:
        """The state by the training data's whitening."""
        return (state.double() - self.state_mean) @ self.state_whitener

    def align(self, latent: Float[Tensor, "m R"]) -> Float[Tensor, "m R"]:
        """The latent, whitened and rotated onto the white state."""
        return self._white_latent(latent) @ self.rotation


def _whitening(samples: Tensor) -> tuple[Tensor, Tensor]:
    mean = samples.mean(0)
    covariance = torch.cov(samples.T) + _RIDGE * torch.eye(samples.shape[1], dtype=samples.dtype)
    values, vectors = torch.linalg.eigh(covariance)
    return mean, vectors @ torch.diag(values.rsqrt()) @ vectors.T


NUM_SCATTER_POINTS = 400


def measure(
    runs: Sequence[OscillatorRun],
    models: OscillatorModels,
    history: History,
    splits_of: dict[int, dict[str, Trajectories]],
) -> list[Record]:
    """All the paper's diagnostics; everything but `validation_r2_by_prefix` is of the test split."""
    encoded = {name: _encode(runs, models, splits_of, name) for name in ("train", "validation", "test")}
    return [
        _record(run, row, history, splits_of[run.seed], {name: (s[row], q[row]) for name, (s, q) in encoded.items()})
        for row, run in enumerate(runs)
    ]


@torch.no_grad()
def _encode(
    runs: Sequence[OscillatorRun],
    models: OscillatorModels,
    splits_of: dict[int, dict[str, Trajectories]],
    split: str,
) -> tuple[Float[Tensor, "M B F D"], Float[Tensor, "M B C"]]:
    observation = torch.stack([splits_of[run.seed][split].observation for run in runs])
    features, latent = models.encode(observation, training=False)
    if runs[0].learns_capacity:
        q = models.capacity_logits(features).softmax(-1)
    else:
        priors = [polynomial_prior(len(run.support), run.prior_degree) for run in runs]
        q = torch.stack(priors).unsqueeze(1).expand(-1, observation.shape[1], -1)
    return latent, q


def _record(
    run: OscillatorRun,
    row: int,
    history: History,
    splits: dict[str, Trajectories],
    encoded: dict[str, tuple[Tensor, Tensor]],
) -> Record:
    latents = {name: latent.flatten(0, 1) for name, (latent, _) in encoded.items()}
    states = {name: splits[name].state.flatten(0, 1) for name in latents}
    spectrum = covariance_spectrum(latents["test"].double())
    test_latent, test_q = encoded["test"]
    record: Record = {
        "r2_by_prefix": recovery_by_prefix(latents["train"], states["train"], latents["test"], states["test"]),
        "validation_r2_by_prefix": recovery_by_prefix(
            latents["train"], states["train"], latents["validation"], states["validation"]
        ),
        "spectrum": spectrum.tolist(),
        "effective_rank": rank_of_spectrum(spectrum).item(),
        "masked_variance": masked_variance(test_latent, test_q, run.support).tolist(),
        "prior_survival": survival(polynomial_prior(len(run.support), run.prior_degree), run.support).tolist(),
        "mean_q": test_q.mean(0).tolist(),
        "q_by_epoch": history.mean_q[row].tolist(),
        "prediction_loss": history.prediction[row, -1].item(),
        "regularizer_loss": history.regularizer[row, -1].item(),
    }
    if run.latent_dim >= TRUE_FACTORS:
        alignment = WhitenedProcrustes(latents["train"][:, :TRUE_FACTORS], states["train"])
        aligned, truth = alignment.align(latents["test"][:, :TRUE_FACTORS]), alignment.white_state(states["test"])
        every = max(1, len(aligned) // NUM_SCATTER_POINTS)
        record["procrustes"] = {
            "aligned": aligned[::every].float().tolist(),
            "state": truth[::every].float().tolist(),
            "r2": float(1 - (aligned - truth).square().sum() / (truth - truth.mean(0)).square().sum()),
        }
    return record


def validation_score(record: Record) -> float:
    """Validation R² that selects: of the whole latent for LeWM, of the first four coordinates for ALeWM."""
    by_prefix: list[float] = record["validation_r2_by_prefix"]
    return by_prefix[-1] if record["method"] == "lewm" else by_prefix[min(TRUE_FACTORS, len(by_prefix)) - 1]


def select(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The selected configuration of LeWM at each width and of ALeWM, each with all its seeds.

    A configuration is judged by its mean over seeds; a tie goes to the smaller weight.
    """
    contests: dict[str, dict[tuple[Any, ...], list[Record]]] = {}
    for record in records:
        title = f"LeWM d={record['latent_dim']}" if record["method"] == "lewm" else "ALeWM"
        setting = (record["lambda"], record["alpha"])
        contests.setdefault(title, {}).setdefault(setting, []).append(record)
    return {title: max(entries.items(), key=_merit)[1] for title, entries in contests.items()}


def _merit(entry: tuple[tuple[Any, ...], list[Record]]) -> tuple[float, float]:
    (weight, _), records = entry
    return sum(map(validation_score, records)) / len(records), -weight


def distance_from_survival(masked_variance: Sequence[float], prior_survival: Sequence[float]) -> float:
    """The mean over coordinates of |masked variance - ρ|; zero where the masked latent matches its target."""
    return fmean(abs(v - rho) for v, rho in zip(masked_variance, prior_survival, strict=True))
