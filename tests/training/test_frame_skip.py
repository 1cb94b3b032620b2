"""Frame skip: one number that the data file, the run, its checkpoint and its planner share, or refuse."""

import json

import numpy as np
import pytest

import alewm
from alewm.config import to_dict
from alewm.errors import InputError
from alewm.shapes import FRAME_SKIP
from alewm.training.distill import DistillConfig
from alewm.training.presets import preset, preset_names

SMALL = {
    "steps": 3,
    "batch_size": 8,
    "device": "cpu",
    "set": {"training.validation_batches": 1, "objective.num_projections": 16},
}
SEARCH = alewm.PlanningConfig(cem=alewm.CEMConfig(num_candidates=8, num_iterations=2, num_elites=2), executed_blocks=1)
QUICK = DistillConfig(hidden_dim=4, horizon=1, num_updates=2, batch_size=4)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file of episodes that says nothing of a frame skip."""
    out = tmp_path_factory.mktemp("frame-skip") / "episodes.h5"
    with alewm.collect("two-room", out, episodes=24, image_size=28, jobs=1) as store:
        return store.path


@pytest.mark.parametrize("frame_skip", [1, 5, 10])
def test_a_model_trains_and_plans_at_any_frame_skip(path, tmp_path, frame_skip):
    model = alewm.train("two-room-tiny", path, tmp_path / "run", frame_skip=frame_skip, **SMALL)
    assert model.frame_skip == frame_skip
    assert model.model.action_dim == 2 * frame_skip

    with alewm.EpisodeStore.open(path) as store:
        episode = store[0]
        plan = model.plan(episode.pixels[0], episode.pixels[-1], SEARCH)
        policy = model.policy(episode.pixels[-1], SEARCH)
        looks = [policy.act(frame).is_new_plan for frame in episode.pixels[: 2 * frame_skip + 1]]
        imagined = model.imagine(episode.pixels[0], np.zeros((2 * frame_skip, 2)))
    assert plan.actions.shape == (SEARCH.horizon * frame_skip, 2)  # the horizon is in blocks
    assert [index for index, is_new in enumerate(looks) if is_new] == [0, frame_skip, 2 * frame_skip]
    assert imagined.shape == (2, 32)

    found = alewm.evaluate(model, episodes=1, candidates=8, iterations=1, device="cpu", animations=0)
    assert found.result["planning"]["frame_skip"] == found.result["evaluated"]["planning"]["frame_skip"] == frame_skip
    record = found.records[0]
    assert record.steps <= 50  # the budget is in environment steps
    distilled = alewm.distill(model.path, (2,), QUICK, is_silent=True)
    assert distilled.networks[2]["config"]["action_dim"] == 2 * frame_skip

    with pytest.raises(InputError, match=f"trained with {frame_skip} environment steps per block"):
        model.planner(alewm.PlanningConfig(frame_skip=frame_skip + 1))


def test_the_windows_of_a_run_are_cut_at_its_frame_skip(path, tmp_path):
    model = alewm.train("two-room-tiny", path, tmp_path / "run", frame_skip=10, **SMALL)
    provenance = json.loads((model.path / "provenance.json").read_text())
    splits = json.loads((model.path / "splits.json").read_text())
    with alewm.EpisodeStore.open(path) as store:
        expected = np.maximum(0, store.lengths[splits["train"]] - 4 * 10 + 1).sum()
    assert provenance["data"]["training_windows"] == expected


def test_training_takes_the_frame_skip_from_the_file_and_refuses_another(tmp_path):
    out = tmp_path / "ten.h5"
    with alewm.collect("two-room", out, episodes=16, image_size=28, jobs=1, frame_skip=10, draw_every=10) as store:
        assert store.window_shape.frame_skip == 10
    assert alewm.train("tiny", out, tmp_path / "run", **SMALL).frame_skip == 10
    with pytest.raises(InputError, match="made for a frame skip of 10, but the configuration has 5"):
        alewm.train("two-room-tiny", out, tmp_path / "other", frame_skip=5, **SMALL)
    with pytest.raises(InputError, match="--draw-every is 1 or 10"):
        alewm.collect("two-room", tmp_path / "x.h5", episodes=2, frame_skip=10, draw_every=3)
    with pytest.raises(InputError, match="frame_skip must be at least 1, got 0"):
        alewm.train("tiny", out, tmp_path / "none", frame_skip=0, **SMALL)


def test_a_run_continues_with_its_own_frame_skip_only(path, tmp_path):
    alewm.train("two-room-tiny", path, tmp_path / "run", frame_skip=1, **SMALL)
    with pytest.raises(InputError, match="frame_skip: asked 5, found 1"):
        alewm.train("two-room-tiny", path, tmp_path / "run", **SMALL)


def test_a_checkpoint_that_contradicts_itself_is_refused(path, tmp_path):
    model = alewm.train("two-room-tiny", path, tmp_path / "run", **SMALL)
    described = model.checkpoint / "checkpoint.json"
    content = json.loads(described.read_text())
    assert content["extras"]["frame_skip"] == FRAME_SKIP
    content["extras"]["frame_skip"] = 10
    del content["sha256"]
    described.write_text(json.dumps(content))
    with pytest.raises(InputError, match="the frame skip is 5 in its config and 10 in its extras"):
        alewm.load(model.path)


def test_the_paper_s_frame_skip_leaves_configurations_as_they_were():

    for name in preset_names():
        assert "frame_skip" not in to_dict(preset(name))
        assert preset(name).with_frame_skip(1).with_frame_skip(FRAME_SKIP) == preset(name)
