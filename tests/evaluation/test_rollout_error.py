"""Error by horizon: none where the laws are known, and exact where the mistake is."""

import torch
from point_world import KnownWorld, RandomWorld

from alewm.evaluation.rollout_error import rollout_error
from alewm.planning.rollout import masked_roll_out


def recorded(model, B=4, H=5):
    generator = torch.Generator().manual_seed(0)
    actions = 0.3 * torch.randn(B, H, 10, generator=generator)
    position = torch.rand(B, 1, 2, generator=generator)
    z = [torch.cat([position, -position, position.flip(-1)], -1)]
    for t in range(H):
        z.append(model.predict(z[-1], actions[:, t : t + 1]))
    return torch.cat(z, 1), actions


def test_the_true_laws_have_no_error_and_standing_still_has():
    latents, actions = recorded(KnownWorld())
    for capacity in (2, 4, 6):
        error = rollout_error(KnownWorld(), latents, actions, capacity)
        assert error.model.shape == (5,)
        assert torch.allclose(error.model, torch.zeros(5), atol=1e-10)
        expected = (latents[:, 1:, :capacity] - latents[:, :1, :capacity]).square().mean((0, 2))
        assert torch.allclose(error.standing_still, expected)


def test_a_constant_drift_grows_with_the_square_of_the_horizon():
    class Drifting(KnownWorld):
        def predict(self, z, actions):
            return super().predict(z, actions) + 0.1

    latents, actions = recorded(KnownWorld())
    error = rollout_error(Drifting(), latents, actions, 2)
    assert torch.allclose(error.model, (0.1 * torch.arange(1.0, 6)) ** 2, rtol=1e-4)


def test_the_predictor_reads_as_many_positions_as_it_is_told():
    model, (latents, actions) = RandomWorld(), recorded(KnownWorld())
    for context in (1, 3):
        imagined = masked_roll_out(model, latents[:, 0], actions[:, None], 4, last_width=4, context=context)
        expected = (torch.cat(imagined, 1)[..., :4] - latents[:, 1:, :4]).square().mean((0, 2))
        torch.testing.assert_close(rollout_error(model, latents, actions, 4, context=context).model, expected)
