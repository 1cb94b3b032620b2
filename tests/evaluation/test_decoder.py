"""The decoder draws what a prefix determines, is bound to its weights, and draws the same for the same seed."""

import pytest
import torch

from alewm.errors import InputError
from alewm.evaluation.decoder import (
    FITTED_DECODER,
    DecodeConfig,
    DecoderConfig,
    PixelDecoder,
    decoding_errors,
    fit_decoder,
)

CPU = torch.device("cpu")


def two_lamps(count, seed, size=12):
    """Frames of two lamps; coordinate 0 is the brightness of the left, coordinate 2 of the right, 1 and 3 are noise."""
    z = torch.rand(count, 4, generator=torch.Generator().manual_seed(seed))
    pixels = torch.zeros(count, size, size, 3)
    pixels[:, 2:5, 1:5] = z[:, :1, None, None]
    pixels[:, 7:10, 7:11] = z[:, 2:3, None, None]
    return z, (pixels * 255).round().to(torch.uint8)


def test_a_prefix_is_drawn_as_far_as_it_determines_the_frame():
    config = DecodeConfig(hidden_dim=24, channels=6, num_updates=400, batch_size=32, learning_rate=1e-2)
    network = fit_decoder(*two_lamps(500, 0), (2, 4), config, device=CPU)
    errors = decoding_errors(network, *two_lamps(200, 1))
    assert errors["2"] == pytest.approx(0.5, abs=0.1), "the right lamp is half of what varies, and unknown"
    assert errors["4"] < 0.05
    z = torch.tensor([[1.0, 0.5]])
    assert network.frames(z).shape == (1, 12, 12, 3)
    drawn = network.frames(z)[0].float()
    assert drawn[3, 3].mean() > 220
    assert 90 < drawn[8, 9].mean() < 165, "an average lamp, where the prefix says nothing of it"


def test_coordinates_beyond_the_capacity_are_never_read():
    network = fit_decoder(*two_lamps(50, 0), (2, 4), DecodeConfig(num_updates=3, batch_size=8), device=CPU)
    z = torch.randn(5, 4)
    which = torch.zeros(5, dtype=torch.long)
    changed = torch.cat([z[:, :2], torch.full((5, 2), torch.nan)], 1)
    assert torch.equal(network(z, which), network(changed, which))


@pytest.mark.parametrize("size", [5, 28, 30, 64])
def test_frames_of_any_size_can_be_drawn(size):
    network = PixelDecoder(DecoderConfig((2, 3), size, hidden_dim=4, channels=3))
    assert network.frames(torch.zeros(2, 7, 3)).shape == (2, 7, size, size, 3)
    with pytest.raises(InputError, match="2, 3"):
        network.frames(torch.zeros(1, 1))


def test_the_same_seed_fits_the_same_network_and_draws_nothing_globally():
    config = DecodeConfig(hidden_dim=8, channels=3, num_updates=5, batch_size=8)
    before = torch.get_rng_state()
    first, second = (fit_decoder(*two_lamps(50, 0), (2, 4), config, device=CPU).state_dict() for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_batch_in_pieces_is_the_batch(monkeypatch):
    config = DecodeConfig(hidden_dim=8, channels=3, num_updates=3, batch_size=20)
    whole = fit_decoder(*two_lamps(50, 0), (2, 4), config, device=CPU).state_dict()
    monkeypatch.setattr("alewm.evaluation.decoder.PIECE_PIXELS", 7 * two_lamps(1, 0)[1].shape[1] ** 2)
    parts = fit_decoder(*two_lamps(50, 0), (2, 4), config, device=CPU).state_dict()
    for name in whole:
        torch.testing.assert_close(parts[name], whole[name], atol=1e-5, rtol=1e-3)


def test_a_decoder_of_other_weights_is_refused(tmp_path):
    network = PixelDecoder(DecoderConfig((2, 4), 8, hidden_dim=4, channels=3))
    about = {
        "format": 1,
        "config": {"capacities": [2, 4], "image_size": 8, "hidden_dim": 4, "channels": 3},
        "settings": {},
        "weights_sha256": "a" * 64,
        "checkpoint": "step-1",
        "validation_error": {},
    }
    FITTED_DECODER.write(tmp_path / "decoder", network, about, b"picture")
    assert FITTED_DECODER.read(tmp_path / "decoder", "a" * 64).config == network.config
    with pytest.raises(InputError, match="fitted to other weights"):
        FITTED_DECODER.read(tmp_path / "decoder", "b" * 64)
    (tmp_path / "decoder/model.safetensors").write_bytes(b"short")
    with pytest.raises(InputError, match="fit it again"):
        FITTED_DECODER.read(tmp_path / "decoder", "a" * 64)
