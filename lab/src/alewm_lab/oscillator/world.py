"""The study's trajectories, split as in the paper: two controlled damped oscillators, and what is seen of them.

A state is x = (p¹, v¹, p², v²). A model sees four strong coordinates of it and six weak ones. The paper fixes the form
(an invertible wave map; weak sines of dense mixtures) and the noise, and leaves the constants open. Ours are these,
drawn or chosen once and the same for every seed and split:

- the wave map is a chain of sinusoidal shears, x_i += amplitude * sin(frequency * x_(i+1) + phase_i), each of which is
  undone by subtracting the same term, so the chain is invertible whatever its constants;
- the weak directions are Gaussian vectors of unit length, the phases uniform.
"""

import math
from dataclasses import dataclass

import torch

from alewm.shapes import Float, Tensor


@dataclass(frozen=True)
class OscillatorDynamics:
    """The constants of the paper's appendix; the odd ones give position and velocity about unit variance."""

    time_step: float = 0.2
    damping: float = 0.25
    stiffness: float = 1.03887957
    velocity_noise: float = 0.02730495
    position_noise: float = 0.01365248
    action_bound: float = 1.36524771
    hold: int = 4
    """Transitions for which an action is kept."""
    burn_in: int = 256
    """Transitions before recording, so that the zero initial state is forgotten."""
    num_transitions: int = 8

    def simulate(
        self, num_trajectories: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, "N F 4"], Float[Tensor, "N T 2"]]:
        """Nine recorded states and the eight actions between them, for every trajectory."""
        position = torch.zeros(num_trajectories, 2, dtype=torch.float64)
        velocity = torch.zeros_like(position)
        action = torch.zeros_like(position)
        states, actions = [], []
        for transition in range(self.burn_in + self.num_transitions):
            if transition >= self.burn_in:
                states.append(_state(position, velocity))
            if transition % self.hold == 0:
                uniform = torch.rand(num_trajectories, 2, generator=generator, dtype=torch.float64)
                action = self.action_bound * (2 * uniform - 1)
            noise = torch.randn(2, num_trajectories, 2, generator=generator, dtype=torch.float64)
            force = -self.damping * velocity - self.stiffness * (position - action)
            velocity = velocity + self.time_step * force + self.velocity_noise * noise[0]
            position = position + self.time_step * velocity + self.position_noise * noise[1]
            if transition >= self.burn_in:
                actions.append(action)
        states.append(_state(position, velocity))
        return torch.stack(states, 1).float(), torch.stack(actions, 1).float()


def _state(position: Tensor, velocity: Tensor) -> Tensor:
    return torch.stack((position, velocity), -1).flatten(-2)


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


SPLIT_SIZES = {"train": 5000, "validation": 1000, "test": 1000}


@dataclass(frozen=True)
class Trajectories:
    """States, what was seen of them, and the actions between them."""

    state: Float[Tensor, "N F 4"]
    observation: Float[Tensor, "N F 10"]
    action: Float[Tensor, "N T 2"]


def make_splits(seed: int, *, sizes: dict[str, int] = SPLIT_SIZES) -> dict[str, Trajectories]:
    """Independent train, validation and test trajectories of one seed."""
    dynamics, observation = OscillatorDynamics(), ObservationMap()
    splits = {}
    for position, (name, size) in enumerate(sizes.items()):
        generator = torch.Generator().manual_seed(1000 * seed + position)
        state, action = dynamics.simulate(size, generator)
        splits[name] = Trajectories(state, observation.observe(state, generator), action)
    return splits
