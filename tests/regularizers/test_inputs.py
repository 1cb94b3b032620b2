"""Wrong input never reaches the C functions, and looking for it costs no device a wait."""

import json
from pathlib import Path

import pytest
import torch

from address_sanitizer import FUZZ_ROUNDS, run_with_address_sanitizer
from alewm import CapacitySupport, InputError, MixSIGReg
from alewm.regularizers.inputs import check_distribution
from alewm.regularizers.sigreg import mix_sigreg, prefix_sigreg

SUPPORT = CapacitySupport((2, 3, 7))


def test_right_calls_agree_with_the_definition_and_wrong_ones_are_refused_under_address_sanitizer():
    script = Path(__file__).with_name("fuzz_c_path.py")
    found = json.loads(run_with_address_sanitizer(script, "0", str(300 * FUZZ_ROUNDS)))
    kinds = ["right", "shape", "dtype", "device", "value", "buffer", "size in C"]
    assert all(found["told"][kind if kind == "right" else f"wrong {kind}"] >= 10 for kind in kinds), found["told"]
    said = found["refusals"]
    for name, rows in {"too few rows": "(64, 4)", "too many rows": "(256, 4)", "other capacities": "(128, 5)"}.items():
        assert "q must have the shape (128, 4), for the samples on axis 0" in said[name]
        assert f"got {rows}" in said[name]
    assert "axis 1 of latents of shape (128, 4, 64)" in said["another axis"]
    assert "sample_axis=0 would fit" in said["another axis"]
    assert "sample_axis 3 is no axis of latents of shape (128, 4, 64)" in said["no such axis"]
    assert "ends in 64, but the latent has 32 coordinates" in said["other width"]
    assert "q must hold probabilities" in said["logits"]


def operands(dtype=torch.float32):
    s, u = torch.randn(2, 9, 7, dtype=dtype), torch.randn(1, 7, 4, dtype=dtype)
    return s, torch.randn(1, 9, 3, dtype=dtype).softmax(-1), u, torch.full((1, 3), 1 / 3, dtype=dtype)


@pytest.mark.parametrize("path", ["reference", "recurrence", "auto"])
def test_values_are_checked_on_every_path(path):
    s, q, u, prior = operands()
    for spoilt in (2 * q, q - 0.1, q.log()):
        with pytest.raises(InputError, match="q must hold probabilities"):
            mix_sigreg(s, spoilt, u, prior, SUPPORT, path=path)
    with pytest.raises(InputError, match="prior must hold probabilities"):
        mix_sigreg(s, q, u, 2 * prior, SUPPORT, path=path)
    with pytest.raises(InputError, match="choice must choose one capacity per sample"):
        prefix_sigreg(s, q, u, SUPPORT, path=path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_softmax_of_any_precision_is_a_distribution(dtype):
    logits = 4 * torch.randn(500, 64)
    check_distribution("q", logits.to(dtype).softmax(-1))


def test_a_diverged_selector_gives_a_loss_that_is_not_finite_for_training_to_stop_at():
    s, q, u, prior = operands()
    q[0, 3] = torch.nan
    assert mix_sigreg(s, q, u, prior, SUPPORT).isnan().all()


def test_values_on_another_device_are_not_waited_for():
    """A tensor on "meta" has no values to read, as a GPU's are not there yet."""
    check_distribution("q", torch.empty(5, 3, device="meta"))


def test_a_refused_call_draws_no_directions():
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    with pytest.raises(InputError, match="is the feature axis"):
        MixSIGReg(SUPPORT, 0.0, 4)(torch.randn(9, 7), torch.ones(9, 3) / 3, sample_axis=1, generator=generator)
    assert torch.equal(generator.get_state(), before)


def test_a_check_is_neither_compiled_nor_mapped():
    """Reading a value would break a compiled graph in two, and fail inside vmap."""
    s, q, u, prior = operands()

    def checked(q):
        check_distribution("q", q)
        return q + 1

    torch.testing.assert_close(torch.compile(checked, backend="eager", fullgraph=True)(q), q + 1)
    both = torch.vmap(lambda q: mix_sigreg(s, q, u, prior, SUPPORT, path="reference"))(torch.stack((q, q.flip(-1))))
    torch.testing.assert_close(both[0], mix_sigreg(s, q, u, prior, SUPPORT, path="reference"))
