"""Statistics are computed in full precision, and nobody else is."""

import pytest
import torch

from alewm.devices import full_precision


@pytest.fixture
def medium():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


def test_products_are_exact_inside_and_as_they_were_after_it_also_after_an_error(medium):
    ones = torch.ones(2, 2)

    @full_precision(torch.device("cpu"))
    def stumble():
        assert torch.get_float32_matmul_precision() == "highest"
        assert (ones @ ones).dtype == torch.float32
        raise ZeroDivisionError

    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(ZeroDivisionError):
            stumble()
        assert (ones @ ones).dtype == torch.bfloat16
    assert torch.get_float32_matmul_precision() == "medium"
