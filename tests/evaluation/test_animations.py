"""Films are replays of what was executed, and GIFs show them beside their goals."""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from alewm.errors import InputError
from alewm.evaluation.animations import GAP, choose_episodes, film, write_gif
from alewm.evaluation.closed_loop import GoalPairs, OpenLoop, run_closed_loop, uniform_actions
from alewm.evaluation.success import EpisodeRecord
from point_world import ACTION_DIM, PointEnvs, draw, rows

RECORD = EpisodeRecord(0, 0, 25, 42, 8, (1.0,), True, False, 3, (0.1,), (3.0, 2.0, 1.0, 0.0), False, False)


def pairs_of(count):
    start, goal = rows(1, count)
    return GoalPairs(tuple(range(count)), (0,) * count, (25,) * count, start, goal)


def test_a_film_is_the_episode_that_was_run():
    pairs, envs = pairs_of(5), PointEnvs()
    outcome = run_closed_loop(envs, pairs, OpenLoop(uniform_actions(pairs, ACTION_DIM, 12, 0)), budget=12)
    last = envs.render()
    films = film(PointEnvs(), pairs.take([3, 1]), outcome.actions[[3, 1]], outcome.steps[[3, 1]])
    for (frames, goal), b in zip(films, [3, 1], strict=True):
        assert len(frames) == outcome.steps[b] + 1
        assert torch.equal(frames[0], draw(pairs.start_rows["state"])[b])
        assert torch.equal(frames[-1], last[b])
        assert torch.equal(goal, draw(pairs.goal_rows["state"])[b])


def test_half_of_the_chosen_episodes_failed_if_enough_did():
    won, lost = RECORD, dataclasses.replace(RECORD, success=False)
    easy = dataclasses.replace(RECORD, presolved=True)
    assert choose_episodes([easy, won, lost, won, lost, won], 4) == [1, 3, 2, 4]
    assert choose_episodes([won, won, won, lost], 4) == [0, 1, 2, 3]
    assert choose_episodes([lost, lost, won, lost], 4) == [2, 0, 1, 3]
    assert choose_episodes([won, won], 1) == [0]
    assert choose_episodes([easy], 3) == []


def test_a_gif_has_every_frame_and_the_goal_on_the_right(tmp_path):
    frames, goal = (
        draw(torch.rand(6, 2, generator=torch.Generator().manual_seed(0))),
        draw(torch.tensor([[0.2, 0.9]]))[0],
    )
    write_gif(tmp_path / "films" / "one.gif", frames, goal, height=16)
    with Image.open(tmp_path / "films" / "one.gif") as gif:
        assert gif.n_frames == 6
        assert gif.size == (2 * 12 + GAP + 2 * 12, 2 * 8)
        assert gif.info["loop"] == 0
        for index in range(6):
            gif.seek(index)
            picture = torch.from_numpy(np.array(gif.convert("RGB"))).int()
            assert (picture[::2, : 2 * 12 : 2] - frames[index].int()).abs().max() <= 4
            assert (picture[::2, 2 * 12 + GAP :: 2] - goal.int()).abs().max() <= 4
            assert (picture[:, 2 * 12 : 2 * 12 + GAP] >= 251).all()


def test_filming_needs_an_environment_per_episode():
    class Stuck(PointEnvs):
        def render_goal(self):
            return super().render_goal()[:1]

    pairs = pairs_of(2)
    outcome = run_closed_loop(PointEnvs(), pairs, OpenLoop(uniform_actions(pairs, ACTION_DIM, 2, 0)), budget=2)
    with pytest.raises(InputError, match="Filming 2 episodes needs as many environments, got 1"):
        film(Stuck(), pairs, outcome.actions, outcome.steps)
