"""What the study measures beyond the training diagnostics: linear recovery of the state, and alignment with it."""

import torch

from alewm.shapes import Float, Tensor


def recovery_by_prefix(
    train_latent: Float[Tensor, "n D"],
    train_state: Float[Tensor, "n R"],
    latent: Float[Tensor, "m D"],
    state: Float[Tensor, "m R"],
    ridge: float = 1e-6,
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
        gram = y[:, :k].T @ y[:, :k] + ridge * torch.eye(k, dtype=torch.float64)
        probe = torch.linalg.solve(gram, y[:, :k].T @ x)
        predicted = (test_y[:, :k] @ probe) * x_std + x_mean
        recovered.append(float((1 - (test_x - predicted).square().sum(0) / total).mean()))
    return recovered


class WhitenedProcrustes:
    """The orthogonal map from a whitened latent prefix to the whitened state, fitted on training pairs."""

    def __init__(self, latent: Float[Tensor, "n R"], state: Float[Tensor, "n R"], regularization: float = 1e-6) -> None:
        self.latent_mean, self.latent_whitener = _whitening(latent.double(), regularization)
        self.state_mean, self.state_whitener = _whitening(state.double(), regularization)
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


def _whitening(samples: Tensor, regularization: float) -> tuple[Tensor, Tensor]:
    mean = samples.mean(0)
    covariance = torch.cov(samples.T) + regularization * torch.eye(samples.shape[1], dtype=samples.dtype)
    values, vectors = torch.linalg.eigh(covariance)
    return mean, vectors @ torch.diag(values.rsqrt()) @ vectors.T
