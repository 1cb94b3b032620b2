"""What a model sees of a state: four strong coordinates and six weak ones.

The paper fixes the form (an invertible wave map; weak sines of dense mixtures) and the noise, and leaves the
constants open. Ours are these, drawn or chosen once and the same for every seed and split:

- the wave map is a chain of sinusoidal shears, x_i += amplitude * sin(frequency * x_(i+1) + phase_i), each of which is
  undone by subtracting the same term, so the chain is invertible whatever its constants;
- the weak directions are Gaussian vectors of unit length, the phases uniform.
"""

import math
from dataclasses import dataclass

import torch

from alewm.shapes import Float, Tensor

NUM_STRONG = 4
NUM_WEAK = 6


@dataclass(frozen=True)
class ObservationMap:
    """The fixed observation function of the study."""

    wave_amplitude: float = 0.5
    wave_frequency: float = 1.5
    wave_rounds: int = 1
    weak_amplitude: float = 0.5
    strong_noise: float = 0.05
    weak_noise: float = 0.3
    seed: int = 20270
    """Of phases and weak directions; part of the world, not of a run."""

    def _constants(self) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        wave_phase = 2 * math.pi * torch.rand(self.wave_rounds, NUM_STRONG, generator=generator)
        direction = torch.randn(NUM_WEAK, NUM_STRONG, generator=generator)
        direction = direction / direction.norm(dim=1, keepdim=True)
        weak_phase = 2 * math.pi * torch.rand(NUM_WEAK, generator=generator)
        return wave_phase, direction, weak_phase

    def strong(self, x: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
        """The wave map, without noise."""
        phase, _, _ = self._constants()
        columns = list(x.unbind(-1))
        for turn in range(self.wave_rounds):
            for i in range(NUM_STRONG):
                columns[i] = columns[i] + self._shear(columns[(i + 1) % NUM_STRONG], phase[turn, i])
        return torch.stack(columns, -1)

    def invert_strong(self, y: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
        """The state whose noiseless strong coordinates are `y`."""
        phase, _, _ = self._constants()
        columns = list(y.unbind(-1))
        for turn in reversed(range(self.wave_rounds)):
            for i in reversed(range(NUM_STRONG)):
                columns[i] = columns[i] - self._shear(columns[(i + 1) % NUM_STRONG], phase[turn, i])
        return torch.stack(columns, -1)

    def weak(self, x: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 6"]:
        """a sin(w·x + φ), without noise."""
        _, direction, phase = self._constants()
        return self.weak_amplitude * torch.sin(x @ direction.T + phase)

    def observe(self, x: Float[Tensor, "*batch 4"], generator: torch.Generator) -> Float[Tensor, "*batch 10"]:
        """All ten coordinates, with measurement noise."""
        clean = torch.cat((self.strong(x), self.weak(x)), -1)
        std = torch.tensor([self.strong_noise] * NUM_STRONG + [self.weak_noise] * NUM_WEAK)
        return clean + std * torch.randn(clean.shape, generator=generator)

    def _shear(self, neighbour: Tensor, phase: Tensor) -> Tensor:
        return self.wave_amplitude * torch.sin(self.wave_frequency * neighbour + phase)
