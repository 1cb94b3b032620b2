"""A point in the unit square whose image is its position as a colour, and models that know or do not know its laws."""

import torch
from torch import nn

from alewm.capacity.support import CapacitySupport

SUPPORT = CapacitySupport((2, 4, 6))
FRAME_SKIP, ACTION_DIM, SPEED, RADIUS = 5, 2, 0.02, 0.03
ACTION_MEAN, ACTION_STD = torch.tensor([0.1, -0.2]), torch.tensor([0.5, 0.8])


class PointEnvs:
    """Batched: actions move the point by at most 0.02 per step and axis; the goal is reached within 0.03."""

    def reset_to(self, start_rows, goal_rows):
        self.position, self.goal = start_rows["state"].clone(), goal_rows["state"].clone()
        self.steps_taken = 0

    def render(self):
        return draw(self.position)

    def render_goal(self):
        return draw(self.goal)

    def step(self, actions, active=None):
        assert torch.isfinite(actions).all()
        self.position = (self.position + SPEED * actions.clamp(-1, 1)).clamp(0, 1)
        self.steps_taken += 1

    def success(self):
        return self.distance() < RADIUS

    def distance(self):
        return (self.position - self.goal).norm(dim=-1)


def draw(positions):
    """Red is x, green is y; blue marks the lower half so that the picture has a shape."""
    images = torch.zeros(len(positions), 8, 12, 3)
    images[..., :2] = positions[:, None, None] * 255
    images[:, 4:, :, 2] = 255
    return images.round().to(torch.uint8)


def rows(seed=0, count=8, reach=0.25):
    """Starts and goals at most `reach` apart on each axis."""
    generator = torch.Generator().manual_seed(seed)
    start = 0.3 + 0.4 * torch.rand(count, 2, generator=generator)
    goal = (start + reach * (2 * torch.rand(count, 2, generator=generator) - 1)).clamp(0.05, 0.95)
    return {"state": start}, {"state": goal}


class KnownWorld(nn.Module):
    """The true laws in a latent (x, y, then copies of them): planning with it must succeed at every capacity.

    It asks for two coordinates where the goal is far and four where it is near, so that groups differ.
    """

    support = SUPPORT

    def __init__(self):
        super().__init__()
        self.anchor = nn.Parameter(torch.zeros(()))
        self.eval()

    def encode(self, pixels):
        features = pixels.float().mean((-1, -2))[..., :2] / 255
        return features, torch.cat([features, -features, features.flip(-1)], -1)

    def predict(self, z, actions):
        moves = actions.unflatten(-1, (FRAME_SKIP, ACTION_DIM)) * ACTION_STD + ACTION_MEAN
        position = z[..., :2] + SPEED * moves.clamp(-1, 1).sum(-2)
        return torch.cat([position, -position, position.flip(-1)], -1)

    def capacity_logits(self, features):
        far = (features[:, 0] - features[:, 1]).norm(dim=-1) > 0.15
        return torch.where(far[:, None], torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0.0, 1.0, 0.5]))


class RandomWorld(nn.Module):
    """An untrained causal predictor that reads every coordinate and every position it is shown."""

    support = SUPPORT

    def __init__(self, seed=0, latent_dim=6, width=16, block_dim=FRAME_SKIP * ACTION_DIM):
        super().__init__()
        self.latent_in = nn.Linear(latent_dim, width)
        self.action_in = nn.Linear(block_dim, width)
        self.place = nn.Parameter(torch.empty(3, width))
        self.out = nn.Linear(width, latent_dim)
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)
        self.requires_grad_(False).eval()

    def encode(self, pixels):
        features = pixels.float().mean((-1, -2)) / 255
        return features, features.repeat(1, 1, 2)

    def predict(self, z, actions):
        return self.out(self._mix(self.latent_in(z), actions))

    def capacity_logits(self, features):
        return features.mean(1)

    def _mix(self, tokens, actions):
        T = tokens.shape[1]
        tokens = torch.tanh(tokens + self.action_in(actions) + self.place[:T])
        return tokens.cumsum(1) / torch.arange(1, T + 1, device=tokens.device)[:, None]


class SlicedRandomWorld(RandomWorld):
    """The same, with the short path: its input and output maps lose the columns and rows of inactive coordinates."""

    def predict_prefix(self, z, actions, width):
        k = z.shape[-1]
        tokens = z @ self.latent_in.weight[:, :k].T + self.latent_in.bias
        return self._mix(tokens, actions)[:, -1] @ self.out.weight[:width].T + self.out.bias[:width]
