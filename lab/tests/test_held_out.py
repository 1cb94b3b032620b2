"""No frame or action of a test episode reaches training, normalisation or selection."""

import json
import shutil

import h5py
import numpy as np
import pytest

from alewm.data.splits import load_or_make_splits
from alewm.data.store import EpisodeStore
from alewm.sweeps.library import EvaluationWork, Library, TrainingWork
from alewm.training.presets import SEEDS
from alewm_lab.experiments.experiment import Results
from alewm_lab.experiments.framework import recipe
from alewm_lab.experiments.main_table import contest_of
from alewm_lab.experiments.request import Request, make_scale
from older_files import remove_checksums
from smoke_runs import CPU


@pytest.fixture
def poisoned(library, tmp_path_factory):
    """The same file with every frame and action of its test episodes replaced by garbage."""
    folder = tmp_path_factory.mktemp("poisoned")
    path = shutil.copy(library.data_path("two-room"), folder / "two-room.h5")
    with EpisodeStore.open(path) as store:
        rows = [store.rows_of(episode) for episode in load_or_make_splits(store).test]
    (folder / "two-room.splits.json").unlink()
    generator = np.random.default_rng(0)
    with h5py.File(remove_checksums(path), "r+") as file:
        for span in rows:
            shape = file["pixels"][span].shape
            file["pixels"][span] = generator.integers(0, 256, shape, dtype=np.uint8)
            file["action"][span] = 1e6
    return folder


def test_garbage_in_test_episodes_changes_no_model_and_no_selection(library, poisoned, tmp_path):
    request = Request(make_scale("smoke"), SEEDS[:1])
    contest = contest_of(request, [32], ["two-room"])
    validation, runs = request.scale.evaluation("validation"), contest.runs
    assert {run.key for run in runs} == {run.key for run in recipe("main-table").build(request).runs}
    found = []
    for name, data in (("clean", library.data), ("poisoned", poisoned)):
        own = Library(tmp_path / name, data)
        for run in runs:
            TrainingWork(run).perform(own, CPU)
            EvaluationWork(run, validation).perform(own, CPU)
        found.append((own, contest.chosen(Results(own))))
    (clean, selected), (spoilt, selected_again) = found
    assert selected == selected_again
    for run in runs:
        one, other = (own.folder(run) for own in (clean, spoilt))
        (checkpoint,) = (path.name for path in (one / "checkpoints").iterdir())
        weights = [(folder / "checkpoints" / checkpoint / "model.safetensors").read_bytes() for folder in (one, other)]
        assert weights[0] == weights[1]
        described = [
            json.loads((folder / "checkpoints" / checkpoint / "checkpoint.json").read_text()) for folder in (one, other)
        ]
        assert described[0]["extras"]["action_statistics"] == described[1]["extras"]["action_statistics"]
        # Were the garbage not there, this would prove nothing.
        assert described[0]["extras"]["data"]["fingerprint"] != described[1]["extras"]["data"]["fingerprint"]
        records = [
            (EvaluationWork(run, validation).folder(own) / "episodes.jsonl").read_text() for own in (clean, spoilt)
        ]
        assert records[0] == records[1]
