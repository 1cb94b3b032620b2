"""The study's networks, for M models at once: encoder, projector, predictor and capacity network."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from alewm.capacity.prior import log_polynomial_prior
from alewm.experiments.oscillator.config import OscillatorRun
from alewm.experiments.oscillator.ensemble import BatchNorm, ParameterTable, initial_linear, linear, linear_shapes
from alewm.shapes import Float, Tensor

HIDDEN = 64
OBSERVATION_DIM, ACTION_DIM = 10, 2


class OscillatorModels:
    """M models of one kind (method, width), which may differ in seed and hyperparameters.

    The encoder has two hidden layers, the projector (with BatchNorm, as in LeWM), the predictor and the capacity
    network one each, all of width 64 with SiLU. Open in the paper, and our choice: the predictor sees one frame, and
    the capacity network the mean over frames of detached encoder features.
    """

    def __init__(self, runs: Sequence[OscillatorRun], device: torch.device) -> None:
        self.latent_dim = runs[0].latent_dim
        self.has_selector = runs[0].chooses_capacity
        self.model_table = ParameterTable(_model_shapes(self.latent_dim))
        self.selector_table = ParameterTable(_selector_shapes(self.latent_dim) if self.has_selector else {})
        model_rows, selector_rows = [], []
        for run in runs:
            generator = torch.Generator().manual_seed(run.seed)
            model_rows.append(self.model_table.pack(_initial_model(self.latent_dim, generator)))
            if self.has_selector:
                selector_rows.append(self.selector_table.pack(_initial_selector(run, generator)))
        self.model_rows = torch.stack(model_rows).to(device).requires_grad_()
        self.selector_rows = (
            torch.stack(selector_rows).to(device).requires_grad_() if self.has_selector else torch.zeros(len(runs), 0)
        )
        self.projector_norm = BatchNorm(len(runs), HIDDEN, device)

    def encode(
        self, observation: Float[Tensor, "M B F 10"], *, training: bool
    ) -> tuple[Float[Tensor, "M B F W"], Float[Tensor, "M B F D"]]:
        """Encoder features and latents s."""
        p = self.model_table.unpack(self.model_rows)
        frames = observation.flatten(1, 2)
        hidden = F.silu(linear(frames, p, "encoder.0"))
        hidden = F.silu(linear(hidden, p, "encoder.1"))
        features = linear(hidden, p, "encoder.2")
        hidden = linear(features, p, "projector.0")
        hidden = self.projector_norm(hidden, p["projector.norm.weight"], p["projector.norm.bias"], training=training)
        latents = linear(F.silu(hidden), p, "projector.1")
        shape = observation.shape[:3]
        return features.view(*shape, -1), latents.view(*shape, -1)

    def predict(
        self, z: Float[Tensor, "M *batch D"], action: Float[Tensor, "M *batch 2"]
    ) -> Float[Tensor, "M *batch D"]:
        """ŝ_(t+1) from the masked latent z_t and the action a_t."""
        p = self.model_table.unpack(self.model_rows)
        inputs = torch.cat((z, action), -1).flatten(1, -2)
        predicted = linear(F.silu(linear(inputs, p, "predictor.0")), p, "predictor.1")
        return predicted.view(z.shape)

    def capacity_logits(self, features: Float[Tensor, "M B F W"]) -> Float[Tensor, "M B C"]:
        """Logits of q(k | w) for whole sequences."""
        p = self.selector_table.unpack(self.selector_rows)
        return linear(F.silu(linear(features.detach().mean(2), p, "selector.0")), p, "selector.1")

    def state_of(self, model: int) -> dict[str, Tensor]:
        """Named parameters and buffers of one model, for a checkpoint."""
        state = {name: value[model] for name, value in self.model_table.unpack(self.model_rows).items()}
        if self.has_selector:
            state |= {name: value[model] for name, value in self.selector_table.unpack(self.selector_rows).items()}
        state["projector.norm.running_mean"] = self.projector_norm.running_mean[model, 0]
        state["projector.norm.running_var"] = self.projector_norm.running_var[model, 0]
        return {name: value.detach().cpu().contiguous() for name, value in state.items()}


def _model_shapes(latent_dim: int) -> dict[str, tuple[int, ...]]:
    return {
        **linear_shapes("encoder.0", OBSERVATION_DIM, HIDDEN),
        **linear_shapes("encoder.1", HIDDEN, HIDDEN),
        **linear_shapes("encoder.2", HIDDEN, HIDDEN),
        **linear_shapes("projector.0", HIDDEN, HIDDEN),
        "projector.norm.weight": (HIDDEN,),
        "projector.norm.bias": (HIDDEN,),
        **linear_shapes("projector.1", HIDDEN, latent_dim),
        **linear_shapes("predictor.0", latent_dim + ACTION_DIM, HIDDEN),
        **linear_shapes("predictor.1", HIDDEN, latent_dim),
    }


def _initial_model(latent_dim: int, generator: torch.Generator) -> dict[str, Tensor]:
    shapes = {name: shape for name, shape in _model_shapes(latent_dim).items() if "norm" not in name}
    norm = {"projector.norm.weight": torch.ones(HIDDEN), "projector.norm.bias": torch.zeros(HIDDEN)}
    return initial_linear(shapes, generator) | norm


def _selector_shapes(latent_dim: int) -> dict[str, tuple[int, ...]]:
    return {**linear_shapes("selector.0", HIDDEN, HIDDEN), **linear_shapes("selector.1", HIDDEN, latent_dim)}


def _initial_selector(run: OscillatorRun, generator: torch.Generator) -> dict[str, Tensor]:
    """q equals the prior exactly before the first update."""
    parameters = initial_linear(_selector_shapes(run.latent_dim), generator)
    parameters["selector.1.weight"].zero_()
    parameters["selector.1.bias"].copy_(log_polynomial_prior(run.latent_dim, run.prior_degree))
    return parameters
