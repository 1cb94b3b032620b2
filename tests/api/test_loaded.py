"""`alewm.load`: where models are found, what they compute, and what is refused."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import alewm
from alewm.envs.registry import get_task
from alewm.errors import InputError
from alewm.evaluation.held_out import load_pairs
from alewm.planning.planner import PlanningConfig
from alewm.planning.search import CEMConfig

SHIPPED = Path(__file__).parents[2] / "pretrained" / "two-room-tiny"
QUICK = PlanningConfig(cem=CEMConfig(num_candidates=40, num_iterations=4, num_elites=4))


@pytest.fixture(scope="module")
def model():
    return alewm.load(SHIPPED, device="cpu")


@pytest.fixture(scope="module")
def images(model):
    pair = load_pairs(SHIPPED / "pairs.safetensors", "test", model.data_set.fingerprint).take([1])
    env = get_task("two-room").make_vector_env(1)
    env.reset_to(pair.start_rows, pair.goal_rows)
    return env.render()[0].numpy(), env.render_goal()[0].numpy()


def test_a_run_folder_its_checkpoints_and_one_checkpoint_are_the_same_model(model, images, tmp_path):
    alone = tmp_path / model.checkpoint.name
    shutil.copytree(model.checkpoint, alone)
    for path in (str(SHIPPED), SHIPPED / "checkpoints", model.checkpoint, alone):
        found = alewm.load(path, device="cpu")
        assert np.array_equal(found.encode(images[0]), model.encode(images[0]))
    assert (found.path, found.task, found.capacities) == (alone, "two-room", (2, 4, 8, 16, 32))
    assert "<code>" in found._repr_html_()


def test_a_frame_has_the_same_latent_alone_in_a_batch_and_as_the_environment_draws_it_small(model, images):
    frames = np.stack(images)
    latents = model.encode(frames)
    assert latents.shape == (2, 32)
    assert np.allclose(model.encode(frames[1]), latents[1], atol=1e-5)
    env = get_task("two-room").make_vector_env(1, image_size=model.model.image_size)
    pair = load_pairs(SHIPPED / "pairs.safetensors", "test", model.data_set.fingerprint).take([1])
    env.reset_to(pair.start_rows, pair.goal_rows)
    assert np.array_equal(model.encode(env.render()[0].numpy()), model.encode(images[0]))


def test_what_a_plan_promises_is_what_its_actions_are_imagined_to_reach(model, images):
    now, goal = images
    plan = model.plan(now, goal, QUICK)
    assert plan.actions.shape == (25, 2)
    assert plan.capacity == model.capacity(now, goal) == max(plan.q, key=plan.q.__getitem__)
    assert plan.q == pytest.approx(model.q(now, goal))
    imagined = model.imagine(now, plan.actions, capacity=plan.capacity)
    assert imagined.shape == (5, plan.capacity)
    reached = np.square(imagined[-1] - model.encode(goal)[: plan.capacity]).mean()
    assert reached == pytest.approx(plan.cost, rel=1e-3)
    assert model.imagine(now, plan.actions).shape == (5, 32)


def test_a_policy_begins_with_the_plan_of_its_model_within_the_limits_of_the_task(model, images):
    now, goal = images
    plan, policy = model.plan(now, goal, QUICK), model.policy(goal, QUICK)
    acted = np.stack([policy.act(now).action for _ in range(25)])
    assert np.allclose(acted, plan.actions.clip(-1, 1), atol=1e-5)
    assert np.abs(plan.actions).max() > 1


def test_a_model_plans_with_the_distilled_dynamics_beside_it(model, images):
    distilled = alewm.load(SHIPPED, device="cpu", dynamics="distilled")
    own, small = (each.plan(*images, QUICK) for each in (model, distilled))
    assert small.capacity == own.capacity
    assert small.cost != own.cost


def test_objects_say_what_they_are_and_a_notebook_shows_curves_and_an_episode(model):
    assert "two-room-tiny" in repr(model)
    assert "capacities=(2, 4, 8, 16, 32)" in repr(model)
    page = model._repr_html_()
    assert page.count("image/svg+xml") >= 2
    assert page.count("image/gif") == 1


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "no run folder: there is no such folder"),
        (f"{SHIPPED.parent.name}/two-rom-tiny", "no run folder: there is no such folder"),
        (SHIPPED.parent, r"no run folder, but holds some\. Name one of them: .*two-room-tiny"),
        (SHIPPED / "config.json", "it is a file"),
    ],
)
def test_what_is_no_model_is_refused(path, message, monkeypatch):
    monkeypatch.chdir(SHIPPED.parents[1])
    with pytest.raises(InputError, match=message):
        alewm.load(path, device="cpu")


def test_frames_and_actions_of_the_wrong_kind_are_refused(model, images):
    now, goal = images
    with pytest.raises(InputError, match=r"must be uint8 .* got float32"):
        model.encode(now.astype(np.float32))
    with pytest.raises(InputError, match="one frame"):
        model.plan(np.stack([now, now]), goal)
    with pytest.raises(InputError, match=r"\[steps, 2\], in blocks of 5 steps; got \[7, 2\]"):
        model.imagine(now, np.zeros((7, 2)))
    with pytest.raises(InputError, match="finite"):
        model.imagine(now, np.full((5, 2), np.nan))
    with pytest.raises(InputError, match="3"):
        model.imagine(now, np.zeros((5, 2)), capacity=3)
    with pytest.raises(InputError, match=r"floats in \[0, 1\]; got floats from"):
        model.model.encode(torch.full((1, 1, 28, 28, 3), 255.0))


def test_a_local_model_loads_without_the_extra_hub():
    code = (
        f"import sys; sys.modules['huggingface_hub'] = None; import alewm; alewm.load({str(SHIPPED)!r}, device='cpu')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    asked = code.replace(str(SHIPPED), "someone/something")
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert "no folder here" in done.stderr
    # Builders of packages write the name with a dash or an underscore.
    assert "pip install 'huggingface_hub>=0.30'" in done.stderr.replace("huggingface-hub", "huggingface_hub")
