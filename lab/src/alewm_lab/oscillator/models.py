"""The study's networks, for M models at once: every parameter has a leading axis of M models.

One batched product then serves all models, which on a CPU costs little more than one of them. All parameters of an
ensemble live in one matrix [M, n], so that clipping, weight decay and the optimizer are a few row operations.
"""

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F

from alewm.capacity.support import log_polynomial_prior
from alewm.shapes import Float, Tensor
from alewm_lab.oscillator.study import OscillatorRun


class ParameterTable:
    """Names and shapes of the parameters of one model, and where they lie in its row."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = dict(shapes)
        self.sizes = [math.prod(shape) for shape in self.shapes.values()]

    def unpack(self, rows: Float[Tensor, "M n"]) -> dict[str, Tensor]:
        """The named parameters, each [M, *shape], as views of the rows."""
        pieces = torch.split(rows, self.sizes, dim=1)
        return {
            name: piece.reshape(-1, *shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }

    def pack(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, " n"]:
        """The row of one model."""
        return torch.cat([parameters[name].flatten() for name in self.shapes])


def linear_shapes(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    """The two parameters of a linear layer; the weight is stored [inputs, outputs] for a plain product."""
    return {f"{name}.weight": (inputs, outputs), f"{name}.bias": (outputs,)}


def initial_linear(shapes: Mapping[str, tuple[int, ...]], generator: torch.Generator) -> dict[str, Tensor]:
    """Uniform within 1 / sqrt(inputs), as torch initialises its linear layers; one model."""
    parameters = {}
    for name, shape in shapes.items():
        layer = name.removesuffix(".weight").removesuffix(".bias")
        bound = 1 / math.sqrt(shapes[f"{layer}.weight"][0])
        parameters[name] = (2 * torch.rand(shape, generator=generator) - 1) * bound
    return parameters


def linear(x: Float[Tensor, "M N I"], parameters: Mapping[str, Tensor], name: str) -> Float[Tensor, "M N O"]:
    """One linear layer of every model on its own inputs."""
    return torch.baddbmm(parameters[f"{name}.bias"].unsqueeze(1), x, parameters[f"{name}.weight"])


class EnsembleBatchNorm:
    """Batch normalisation without affine parameters of its own (they are given), for every model separately."""

    momentum, epsilon = 0.1, 1e-5

    def __init__(self, num_models: int, width: int) -> None:
        self.running_mean, self.running_var = torch.zeros(num_models, 1, width), torch.ones(num_models, 1, width)

    def __call__(
        self, x: Float[Tensor, "M N W"], scale: Float[Tensor, "M W"], shift: Float[Tensor, "M W"], *, training: bool
    ) -> Float[Tensor, "M N W"]:
        """`x` normalised by its batch while training, by the running moments otherwise."""
        if training:
            # Two plain means: torch.var_mean over an outer axis is fifty times slower on a CPU.
            mean = x.mean(1, keepdim=True)
            var = (x - mean).square().mean(1, keepdim=True)
            with torch.no_grad():
                unbiased = var * (x.shape[1] / (x.shape[1] - 1))
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(unbiased, self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        factor = scale.unsqueeze(1) * torch.rsqrt(var + self.epsilon)
        return torch.addcmul(shift.unsqueeze(1) - mean * factor, x, factor)


class RowAdamW:
    """AdamW on rows, with a learning rate per row; torch's has one per parameter group.

    Tested to equal `torch.optim.AdamW` on every row.
    """

    betas, epsilon = (0.9, 0.999), 1e-8

    def __init__(self, rows: Float[Tensor, "M n"], weight_decay: Float[Tensor, "M"]) -> None:
        self.rows, self.weight_decay = rows, weight_decay.unsqueeze(1)
        self.first, self.second = torch.zeros_like(rows), torch.zeros_like(rows)
        self.num_steps = 0

    @torch.no_grad()
    def step(self, gradient: Float[Tensor, "M n"], learning_rate: Float[Tensor, "M"]) -> None:
        """One update of every row."""
        self.num_steps += 1
        rate = learning_rate.unsqueeze(1)
        self.first.lerp_(gradient, 1 - self.betas[0])
        self.second.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
        corrected = (self.second / (1 - self.betas[1] ** self.num_steps)).sqrt_().add_(self.epsilon)
        self.rows.mul_(1 - rate * self.weight_decay)
        self.rows.sub_(rate / (1 - self.betas[0] ** self.num_steps) * self.first / corrected)


def clip_rows(gradients: Sequence[Float[Tensor, "M _"]], max_norm: Float[Tensor, "M"]) -> None:
    """Scales each model's gradient, in place, to at most `max_norm`."""
    norm = torch.stack([gradient.square().sum(1) for gradient in gradients]).sum(0).sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1).unsqueeze(1)
    for gradient in gradients:
        gradient.mul_(factor)


HIDDEN = 64
OBSERVATION_DIM, ACTION_DIM = 10, 2


class OscillatorModels:
    """M models of one kind (method, width), which may differ in seed and hyperparameters.

    The encoder has two hidden layers, the projector (with BatchNorm, as in LeWM), the predictor and the capacity
    network one each, all of width 64 with SiLU. Open in the paper, and our choice: the predictor sees one frame, and
    the capacity network the mean over frames of detached encoder features.
    """

    def __init__(self, runs: Sequence[OscillatorRun]) -> None:
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
        self.model_rows = torch.stack(model_rows).requires_grad_()
        self.selector_rows = (
            torch.stack(selector_rows).requires_grad_() if self.has_selector else torch.zeros(len(runs), 0)
        )
        self.projector_norm = EnsembleBatchNorm(len(runs), HIDDEN)

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
        return {name: value.detach().contiguous() for name, value in state.items()}


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
