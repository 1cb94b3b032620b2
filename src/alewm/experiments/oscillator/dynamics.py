"""Two independent controlled damped oscillators: states x = (p¹, v¹, p², v²) and the actions that drive them."""

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
