import pytest
import torch

from alewm.errors import InputError
from alewm.training.acceleration import choose_acceleration

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_the_fastest_path_that_can_run_is_taken_and_the_reason_given():
    assert str(choose_acceleration("auto", CPU)).startswith("not compiled (the device is a cpu, where compiling")
    assert str(choose_acceleration("auto", GPU)) == "compiled and recorded as a CUDA graph (one GPU with Triton)"
    assert choose_acceleration("none", GPU).reason == "asked for"
    assert choose_acceleration("compile", GPU).path == "compile"
    assert str(choose_acceleration("record", GPU)) == "recorded as a CUDA graph (asked for)"


def test_a_path_asked_for_by_name_that_cannot_run_is_refused():
    for asked in ("compile", "graph"):
        with pytest.raises(InputError, match="Updates cannot be compiled: the device is a cpu"):
            choose_acceleration(asked, CPU)
    with pytest.raises(InputError, match="Updates cannot be recorded: the device is a cpu"):
        choose_acceleration("record", CPU)


def test_what_is_not_accelerated_can_be_suspended():
    with choose_acceleration("auto", CPU).suspended():
        assert torch.ones(2).sum() == 2
