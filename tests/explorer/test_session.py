"""The explorer plans as an evaluation does, takes clicks and states, and says what is wrong with a run."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import alewm
from alewm.errors import InputError
from alewm.evaluation.evaluate_run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings
from alewm.explorer.drawing import DistancePlot, attempt_view, curves
from alewm.explorer.page import MOST_IN_PUBLIC, Page, explore, is_own
from alewm.explorer.session import Attempt, Explored, SearchSize
from alewm.planning.planner import PlanningConfig
from alewm.planning.search import CEMConfig

SHIPPED = Path(__file__).parents[2] / "pretrained"
ALEWM, LEWM = SHIPPED / "two-room-tiny", SHIPPED / "two-room-tiny-lewm"
QUICK = SearchSize(40, 4)


@pytest.fixture(scope="module")
def explored():
    run = Explored(ALEWM)
    assert not run.problem
    return run


def finished(run, start, goal, **options):
    steps = list(run.attempt(start, goal, QUICK, **options))
    return steps[-1], len(steps)


def test_an_attempt_is_the_episode_that_an_evaluation_plans(explored, tmp_path):
    cem = CEMConfig.with_a_tenth_elite(QUICK.num_candidates, QUICK.num_iterations)
    settings = EvaluationSettings(num_episodes=4, planning=PlanningConfig(cem=cem), dynamics="distilled")
    found = evaluate_run(
        ALEWM, settings, device=torch.device("cpu"), num_animations=0, out=tmp_path / "out", is_silent=True
    )
    for i, record in enumerate(found.records):
        attempt, _ = finished(explored, *explored.pair(i), stream=explored.pairs.episodes[i])
        assert (attempt.success, attempt.capacity) == (record.success, record.capacity)
        assert attempt.distances == pytest.approx(record.distances, abs=1e-3)


def test_every_iteration_and_every_block_is_shown(explored):
    attempt, num_shown = finished(explored, *explored.pair(0))
    plans = len(attempt.elite_costs)
    assert all(len(costs) == QUICK.num_iterations for costs in (*attempt.elite_costs, *attempt.spreads))
    assert num_shown > plans * QUICK.num_iterations
    assert len(attempt.frames) == len(attempt.distances) <= 51
    assert len(attempt.imagined) == len(attempt.imagined_costs) == 5 * plans + 1
    assert attempt.frames[0].shape == (224, 224, 3)
    assert attempt.imagined[0].shape == (28, 28, 3)
    assert "steps" in attempt.note


def test_a_chosen_capacity_plans_and_an_unknown_one_is_refused(explored):
    attempt, _ = finished(explored, *explored.pair(0), capacity=16)
    assert attempt.capacity == 16
    assert sum(attempt.q.values()) == pytest.approx(1, abs=1e-4)
    with pytest.raises(InputError, match="2, 4, 8, 16, 32"):
        finished(explored, *explored.pair(0), capacity=5)


def test_a_click_is_a_state_and_one_outside_the_room_is_refused(explored):
    start, goal = explored.clicked(60, 150), explored.clicked(160, 40)
    first, last = explored.draw(start, goal)
    red = first[..., 1].astype(int)
    assert np.unravel_index(red[145:156, 55:66].argmin(), (11, 11)) == (5, 5), "the dot is where the click was"
    assert not np.array_equal(first, last)
    with pytest.raises(InputError):
        explored.clicked(-40, 10)


def test_an_evaluated_episode_is_drawn_from_its_kept_actions(explored):
    frames = explored.replay(0)
    assert len(frames) == explored.records[0].steps + 1
    start, _ = explored.draw(*explored.pair(0))
    assert np.array_equal(frames[0], start)


@pytest.fixture(scope="module")
def reacher(tmp_path_factory):
    """A run of a task whose state is numbers, on frames that OpenGL drew."""
    folder = tmp_path_factory.mktemp("reacher")
    episodes = {"episodes": 10, "max_steps": 30, "draw_every": 5, "image_size": 28, "jobs": 1}
    alewm.collect("reacher", folder / "reacher.h5", drawing="mujoco", **episodes).close()
    alewm.train("reacher-tiny", folder / "reacher.h5", folder / "run", steps=2, batch_size=4, threads=1, device="cpu")
    return folder / "run"


def test_numbers_of_the_state_place_start_and_goal(reacher):
    run = Explored(reacher)
    shoulder, wrist = run.sliders()
    assert [(each.name, each.column, each.index) for each in (shoulder, wrist)] == [
        ("shoulder", "qpos", 0),
        ("wrist", "qpos", 1),
    ]
    start, goal = run.pair(0)
    assert shoulder.low <= shoulder.read(goal) <= shoulder.high
    turned = shoulder.written(goal, shoulder.read(goal) + 1.5)
    assert wrist.read(turned) == wrist.read(goal)
    first, last = run.draw(start, goal)
    same, other = run.draw(start, turned)
    assert np.array_equal(first, same)
    assert not np.array_equal(last, other)
    attempt, _ = finished(run, start, turned)
    assert len(attempt.distances) == len(attempt.frames) <= 51
    with pytest.raises(InputError, match="no state"):
        run.clicked(10, 10)


def test_one_thread_draws_whoever_asks(explored, monkeypatch):
    """OpenGL's contexts belong to a thread."""
    drew = []
    placed = Explored.placed
    monkeypatch.setattr(Explored, "placed", lambda *given: drew.append(threading.get_ident()) or placed(*given))
    page = Page([explored])
    scene = page.choose_pair(0)
    with ThreadPoolExecutor(2) as threads:
        for _ in range(4):
            threads.submit(page.here, page.lead.draw, scene.start, scene.goal).result()
            threads.submit(next, page.attempts(scene, 0, 20, 1)).result()
    assert len(drew) == 8
    assert len(set(drew)) == 1


def test_two_runs_plan_to_the_same_goal():
    page = explore([ALEWM, LEWM])
    *_, last = page.attempts(page.choose_pair(3), 0, 40, 4)
    assert [attempt.capacity for attempt in last] == [4, 32]
    assert np.array_equal(last[0].frames[0], last[1].frames[0])
    assert len(page.pair_labels()) == 200


def test_what_is_wrong_with_a_run_is_said(tmp_path):
    for name in ("broken", "bare", "young"):
        shutil.copytree(ALEWM, tmp_path / name)
    weights = next((tmp_path / "broken").glob("checkpoints/*/*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:1000])
    broken = Explored(tmp_path / "broken")
    assert "cannot be opened" in broken.problem
    assert Page([broken]).first_scene() is None
    (tmp_path / "bare/pairs.safetensors").unlink()
    shutil.rmtree(tmp_path / "bare/decoder")
    bare = Explored(tmp_path / "bare")
    assert "No held-out pairs" in bare.note
    assert "alewm decode" in bare.note
    assert Page([bare]).first_scene() is not None, "a start and a goal can still be clicked"
    (tmp_path / "young/result.json").unlink()
    assert "Still training: update 3,300 is used." in Explored(tmp_path / "young").note
    with pytest.raises(InputError, match="no run folder"):
        Explored(tmp_path / "nowhere")
    with pytest.raises(InputError, match="one run or two"):
        explore([])


def test_a_public_page_searches_no_more_than_it_may():
    assert SearchSize(10_000, 500).within(MOST_IN_PUBLIC) == MOST_IN_PUBLIC
    assert SearchSize(0, 0).within(MOST_IN_PUBLIC) == SearchSize(20, 1)


@pytest.mark.parametrize(
    ("host", "origin", "own"),
    [
        ("127.0.0.1:7860", None, True),
        ("localhost:7860", "http://localhost:7860", True),
        ("127.0.0.1:7860", "http://127.0.0.1:9000", False),
        ("127.0.0.1:7860", "https://evil.example", False),
        ("127.0.0.1:7860", "null", False),
        ("evil.example", None, False),
        ("127.0.0.1.evil.example", None, False),
        ("", None, False),
    ],
)
def test_only_its_own_page_is_answered(host, origin, own):
    headers = {b"host": host.encode()} | ({} if origin is None else {b"origin": origin.encode()})
    assert is_own(headers) is own


def test_a_place_in_the_plot_is_the_nearest_line(explored):
    plot = DistancePlot(explored.records, "distances")
    missed = next(i for i, record in enumerate(explored.records) if not record.success)
    place = plot._to_pixels.transform((50, explored.records[missed].distances[50]))
    assert plot.nearest(place[0], plot.picture.shape[0] - place[1]) == missed


def test_names_are_never_markup():
    black = np.zeros((4, 4, 3), np.uint8)
    attempt = Attempt(2, {2: 1.0}, frames=[black], distances=[1.0])
    assert "<script" not in attempt_view("<script>", "#000", attempt, black)
    assert "<b>" not in curves("<b>", [("<b>", [1.0, 2.0], "#000")])
