"""`alewm decode` and what a report shows of a run's imagination, also without a simulator or a decoder."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

import alewm as library
from alewm.evaluation.imagination import imagine_run
from alewm.interop.pretrained import save_pretrained
from command_line import contents, run_alewm

QUICK = ("--updates", 5, "--hidden", 8, "--channels", 3, "--frames", 60, "--device", "cpu")


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    """A copy of the run with a decoder."""
    folder = tmp_path_factory.mktemp("decoded")
    shutil.copytree(trained, folder / "run")
    done = run_alewm(folder, "decode", "run", *QUICK)
    assert done.stdout.splitlines()[-1] == "run/decoder/examples.png"
    assert "error / pixel variance" in done.stdout
    return folder / "run"


def test_the_picture_has_a_column_per_capacity(run):
    model = library.load(run, device="cpu")
    with Image.open(run / "decoder/examples.png") as picture:
        assert picture.width == (1 + len(model.capacities)) * model.model.image_size
        assert picture.height == 6 * model.model.image_size


def test_repeating_the_command_finds_what_is_there_and_other_settings_are_refused(run, alewm_here, refused):
    before = contents(run / "decoder")
    alewm_here("decode", run, *QUICK)
    assert contents(run / "decoder") == before
    assert "settings.num_updates: asked 6, found 5" in refused("decode", run, "--updates", 6, *QUICK[2:])


def test_python_decodes_latents_and_prefixes(run, trained):
    model = library.load(run, device="cpu")
    frame = np.zeros((model.model.image_size, model.model.image_size, 3), np.uint8)
    z = model.encode(frame)
    assert model.decode(z).shape == frame.shape
    assert model.decode(z[: model.capacities[0]][None]).shape == (1, *frame.shape)
    with pytest.raises(library.InputError, match="alewm decode"):
        library.load(trained, device="cpu").decode(z)


def test_a_shared_model_brings_its_decoder_and_what_it_imagines(run, tmp_path):
    imagine_run(run)
    shared = save_pretrained(run, tmp_path / "shared", "bfloat16")
    assert imagine_run(shared, data_path=tmp_path / "nowhere.h5") == shared / "imagination", "known without data"
    assert (shared / "decoder/examples.png").read_bytes() == (run / "decoder/examples.png").read_bytes()
    model = library.load(shared, device="cpu")
    assert model.decode(np.zeros(model.capacities[-1])).dtype == np.uint8


def test_what_is_imagined_is_measured_for_every_capacity_and_drawn(run, trained, tmp_path):
    folder = imagine_run(run)
    found = json.loads((folder / "imagination.json").read_text())
    capacities = library.load(run, device="cpu").capacities
    assert {f"k = {k}" for k in capacities} | {"holding still"} == set(found["errors"])
    for bands in found["errors"].values():
        assert all(low <= high for low, high in zip(bands["low"], bands["high"], strict=True))
    assert found["strips"]["drawn_by"] == "decoder"
    before = contents(folder)
    assert contents(imagine_run(run)) == before, "nothing changed, so nothing is made anew"
    shutil.copytree(trained, tmp_path / "bare")
    bare = json.loads((imagine_run(tmp_path / "bare") / "imagination.json").read_text())
    assert bare["strips"]["drawn_by"] == "nearest training frame"
    assert bare["errors"] == found["errors"]
