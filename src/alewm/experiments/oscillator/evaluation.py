"""The measurements of one trained ensemble, as one JSON-able record per run."""

from collections.abc import Sequence
from typing import Any

import torch

from alewm.capacity.prior import polynomial_prior, survival
from alewm.experiments.oscillator.config import TRUE_FACTORS, OscillatorRun
from alewm.experiments.oscillator.data import Trajectories
from alewm.experiments.oscillator.metrics import WhitenedProcrustes, recovery_by_prefix
from alewm.experiments.oscillator.models import OscillatorModels
from alewm.experiments.oscillator.training import History
from alewm.shapes import Float, Tensor
from alewm.training.diagnostics import covariance_spectrum, masked_variance, rank_of_spectrum

NUM_SCATTER_POINTS = 400


def measure(
    runs: Sequence[OscillatorRun],
    models: OscillatorModels,
    history: History,
    splits_of: dict[int, dict[str, Trajectories]],
) -> list[dict[str, Any]]:
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
    device = models.model_rows.device
    observation = torch.stack([splits_of[run.seed][split].observation for run in runs]).to(device)
    features, latent = models.encode(observation, training=False)
    if runs[0].learns_capacity:
        q = models.capacity_logits(features).softmax(-1)
    else:
        priors = [polynomial_prior(len(run.support), run.prior_degree) for run in runs]
        q = torch.stack(priors).unsqueeze(1).expand(-1, observation.shape[1], -1)
    return latent.cpu(), q.cpu()


def _record(
    run: OscillatorRun,
    row: int,
    history: History,
    splits: dict[str, Trajectories],
    encoded: dict[str, tuple[Tensor, Tensor]],
) -> dict[str, Any]:
    latents = {name: latent.flatten(0, 1) for name, (latent, _) in encoded.items()}
    states = {name: splits[name].state.flatten(0, 1) for name in latents}
    spectrum = covariance_spectrum(latents["test"].double())
    test_latent, test_q = encoded["test"]
    record: dict[str, Any] = {
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
