"""`alewm train` on files in the published layouts, and without the package that reads them."""

import json

import pytest

from command_line import run_alewm
from published_files import LAYOUTS, write_published

FEW = ("--steps", 2, "--batch-size", 2, "--threads", 1, "--device", "cpu")
SIZE = 28
SMALL = (
    *("--set", f"model.encoder.image_size={SIZE}", "model.encoder.num_blocks=2", "model.predictor.num_blocks=2"),
    *("model.selector.num_blocks=1", "training.validation_batches=1"),
)
WITHOUT_COPIES = [name for name, layout in LAYOUTS.items() if layout.copies == 1]


def command(folder, name, num_episodes):
    write_published(folder / f"{name}.h5", name, num_episodes, size=SIZE)
    return ("train", f"{LAYOUTS[name].task}-96", "--data", f"{name}.h5", "--out", "run", *FEW, *SMALL)


def num_updates(folder):
    return json.loads((folder / "run/result.json").read_text())["training"]["step"]


@pytest.mark.parametrize("name", WITHOUT_COPIES)
def test_a_published_file_is_trained_on_by_path(name, alewm_here, tmp_path):
    assert alewm_here(*command(tmp_path, name, 3)).split() == ["run"]
    assert num_updates(tmp_path) == 2


def test_copies_in_a_published_file_are_found_and_counted(tmp_path):
    done = run_alewm(tmp_path, *command(tmp_path, "pusht_expert_train", 6))
    assert done.stdout.split() == ["run"]
    assert "pusht_expert_train.h5 has 3 families of copies, found by equal length and first 'state'" in done.stderr
    assert num_updates(tmp_path) == 2


def test_without_the_codec_the_message_has_the_install_line(tmp_path):
    write_published(tmp_path / "tworoom.h5", "tworoom")
    blocked = "import sys; sys.modules['hdf5plugin'] = None; from alewm.cli.main import main; main()"
    done = run_alewm(
        tmp_path, "train", "two-room-96", "--data", "tworoom.h5", *FEW, check=False, launcher=("-c", blocked)
    )
    assert done.returncode == 2
    assert "tworoom.h5, column 'pixels': compressed with HDF5 filter 32001" in done.stderr
    assert "Install it: pip install 'hdf5plugin>=5'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
