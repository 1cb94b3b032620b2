"""What measurements look at in a trained model, written out for one of the smoke runs."""

import numpy as np
import pytest
import torch

from alewm.capacity.support import prefix_masks, survival
from alewm.envs import reacher
from alewm.evaluation.held_out import Trained
from alewm.sweeps.library import TrainingWork
from alewm_lab.experiments.episodes import pixels_per_metre
from alewm_lab.experiments.measured_models import encoded_windows, forced_losses, variance_beside_survival
from alewm_lab.experiments.request import Request, make_scale
from smoke_runs import CPU


@pytest.fixture
def place(library):
    """The folder of a trained run, and its data."""
    scale = make_scale("smoke")
    run = Request(scale, scale.seeds).alewm("two-room", 32, scale.seeds[0])
    if not TrainingWork(run).is_done(library):
        TrainingWork(run).perform(library, CPU)
    return library.folder(run), library.data_path("two-room")


def test_windows_are_latents_and_normalised_actions_of_episodes_of_their_part(place):
    with Trained.open(*place, CPU) as trained:
        windows = encoded_windows(trained, "validation", 12)
        first = windows.rows[:, 0]
        episodes = np.searchsorted(trained.store.offsets, first, side="right") - 1
        assert set(episodes.tolist()) <= set(trained.splits.validation)
        assert (windows.rows[:, -1] < trained.store.offsets[episodes] + trained.store.lengths[episodes]).all()
        _, latents = trained.encode_rows(first + 5)
        torch.testing.assert_close(windows.latents[:, 1], latents, rtol=1e-4, atol=1e-4)
        actions = trained.store.actions[first[:, None] + np.arange(5, 10)]
        expected = (actions - np.array(trained.statistics.mean)) / np.array(trained.statistics.std)
        np.testing.assert_allclose(windows.actions[:, 1], expected.reshape(12, -1), rtol=1e-4, atol=1e-5)


def test_a_forced_loss_is_that_of_predicting_the_whole_next_latent_from_the_masked_ones(place):
    with Trained.open(*place, CPU) as trained:
        model, windows = trained.model, encoded_windows(trained, "validation", 12)
        masks = prefix_masks(model.support)
        for c, mask in enumerate(masks):
            predicted = model.predict(windows.latents[:, :-1] * mask, windows.actions)
            expected = (predicted - windows.latents[:, 1:]).square().sum(-1).mean(-1)
            torch.testing.assert_close(forced_losses(model, windows, masks)[:, c], expected.detach())


def test_the_survival_of_q_is_beside_that_of_the_prior(place):
    with Trained.open(*place, CPU) as trained:
        support, windows = trained.model.support, encoded_windows(trained, "validation", 12)
        q = torch.eye(len(support))[[1] * 6 + [0] * 6]
        found = variance_beside_survival(trained, windows, q)
        prior = trained.model.log_prior.exp()
    assert found["q_survival"] == pytest.approx(survival(q.mean(0), support).tolist())
    assert found["prior_survival"] == pytest.approx(survival(prior, support).tolist())
    assert found["raw_variance"] == pytest.approx(windows.latents.flatten(0, 1).var(0, correction=0).tolist())
    assert not any(found["masked_variance"][support.capacities[1] :])


def test_a_metre_takes_as_many_pixels_as_reachers_picture_says():
    """The stretched arm, pointing right, ends where the finger's outer edge is; its radius is a centimetre."""
    envs = reacher.ReacherVectorEnv(2, device="cpu", image_size=reacher.IMAGE_SIZE)
    rows = {"qpos": np.array([[0.0, 0.0], [np.pi, 0.0]]), "qvel": np.zeros((2, 2))}
    envs.reset_to(rows, rows)
    right, left = envs.render().int()
    changed = (right - left).abs().sum(-1)[:, reacher.IMAGE_SIZE // 2 :].amax(0) > 60
    reach = changed.nonzero().max().item() + 1
    assert reach == pytest.approx((2 * reacher.LINK_LENGTH + 0.01) * pixels_per_metre(), abs=2)
