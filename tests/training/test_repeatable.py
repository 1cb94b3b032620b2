"""Repeatable algorithms are asked for while an update runs, and at no other time."""

import pytest
import torch

from alewm.training.step import repeatable


def state():
    return torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory


def fail(asked):
    before = state()
    with repeatable(asked):
        assert state() == ((True, False) if asked else before)
        raise ZeroDivisionError


@pytest.mark.parametrize("asked", [True, False])
def test_what_was_set_before_is_set_again_also_after_an_error(asked):
    before = state()
    with pytest.raises(ZeroDivisionError):
        fail(asked)
    assert state() == before
