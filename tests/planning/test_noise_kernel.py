"""The noise a GPU draws; its kernel runs in Triton's interpreter, so no GPU is needed."""

import torch

from alewm.planning.noise import drawn_at_once

SHAPE = (2, 20, 3, 4)
KEYS = [(42, episode, 0) for episode in (3, 8, 5)]


def test_an_episodes_noise_depends_on_its_own_key_alone():
    together = drawn_at_once(KEYS, SHAPE, "cpu")
    assert together.shape == (2, 3, 20, 3, 4)
    for b, key in enumerate(KEYS):
        assert torch.equal(drawn_at_once([key], SHAPE, "cpu")[:, 0], together[:, b])
    assert not torch.equal(together[:, 0], together[:, 1])
    assert not torch.equal(drawn_at_once([(42, 3, 1)], SHAPE, "cpu")[:, 0], together[:, 0]), "another plan"
    assert not torch.equal(drawn_at_once([(43, 3, 0)], SHAPE, "cpu")[:, 0], together[:, 0]), "another seed"


def test_it_is_standard_normal_except_for_the_candidate_that_is_the_mean():
    noise = drawn_at_once([(0, 0, 0)], (4, 60, 5, 10), "cpu")
    assert not noise[:, :, 0].any()
    drawn = noise[:, :, 1:].flatten().double()
    n = len(drawn)
    assert abs(drawn.mean()) < 4 / n**0.5
    assert abs(drawn.var() - 1) < 4 * (2 / n) ** 0.5
    assert abs((drawn[1:] * drawn[:-1]).mean()) < 4 / n**0.5, "neighbours are independent"
    iterations = noise[:, 0, 1:].flatten(1)
    assert not torch.equal(iterations[0], iterations[1])
