"""The moving picture of the README: goals reached in the four tasks, each beside its goal image.

`python -m alewm_lab.publishing.tasks_film` (or `make film`) writes `docs/images/tasks.webp` and prints what it shows.
Two-Room is planned by the shipped model from images. Weights of the models of the other tasks are not in the
repository: there the same search plans in the task's own simulator. Of every task the first pairs are shown that are
reached, in the order of the pairs, without those that are reached before the first step.
"""

import io
from collections.abc import Iterator
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from alewm.api import load
from alewm.envs.registry import get_task
from alewm.evaluation.animations import film
from alewm.evaluation.closed_loop import GoalPairs, Unseen, run_closed_loop
from alewm.evaluation.held_out import load_pairs
from alewm.evaluation.success import BUDGET
from alewm.files import write_bytes
from alewm.planning.planner import PlanningConfig
from alewm.planning.policy import RecedingHorizon
from alewm.planning.search import CEMConfig
from alewm.progress import Progress
from alewm.resize import area_downsample
from alewm.shapes import Tensor
from alewm_lab.benchmarks.replay import simulated_pairs
from alewm_lab.benchmarks.true_simulator import TrueSimulator, state_cost

MODEL = Path("pretrained/two-room-tiny")
SIMULATED = {"push-t": (100, 10), "reacher": (100, 10), "cube": (60, 6)}
"""Candidates and iterations of the search in each simulator: small ones, since every candidate is acted out."""
MOST_PAIRS = 8
EPISODES = 3
SIZE, GOAL, MARGIN, LABEL = 176, 72, 6, 22
"""Pixels of a frame, of its goal, between columns, and of a line of text."""
FRAMES_PER_SECOND, PAUSE = 14, 14
"""Frames per second, and frames that a reached goal is shown for."""

FONT = ImageFont.load_default(size=14)

Film = tuple[Tensor, Tensor]
"""Frames [T, Y, X, 3] and the goal [Y, X, 3]."""


def reached_in_two_room() -> Iterator[Film]:
    """Episodes in which the shipped model reaches its goal."""
    model = load(MODEL, device="cpu")
    pairs = load_pairs(MODEL / "pairs.safetensors", "test", model.data_set.fingerprint)
    task = get_task("two-room")
    for index in range(len(pairs)):
        pair = pairs.take([index])
        envs = task.make_vector_env(1, image_size=model.model.image_size)
        outcome = run_closed_loop(envs, pair, RecedingHorizon(model.planner()), budget=BUDGET)
        if bool(outcome.success) and not bool(outcome.presolved):
            yield film(task.make_vector_env(1), pair, outcome.actions, outcome.steps)[0]


def reached_in_simulator(task_name: str) -> Iterator[Film]:
    """Episodes in which the search in the task's own simulator reaches the goal."""
    standard, (candidates, iterations) = simulated_pairs(task_name, MOST_PAIRS), SIMULATED[task_name]
    planning = PlanningConfig(cem=CEMConfig.with_a_tenth_elite(candidates, iterations))
    task = standard.task
    for index in range(len(standard.pairs)):
        pair: GoalPairs = standard.pairs.take([index])
        env = task.make_vector_env(1)
        policy = TrueSimulator(env, task.make_vector_env, state_cost(task_name), standard.statistics, planning)
        outcome = run_closed_loop(Unseen(env), pair, policy, budget=BUDGET)
        if bool(outcome.success) and not bool(outcome.presolved):
            yield film(task.make_vector_env(1), pair, outcome.actions, outcome.steps)[0]


def panel(frame: Tensor, goal: Tensor, *, is_reached: bool) -> Image.Image:
    """The frame, and its goal below it."""
    picture = Image.new("RGB", (SIZE, SIZE + MARGIN + GOAL), "white")
    picture.paste(Image.fromarray(area_downsample(frame, SIZE).numpy()), (0, 0))
    picture.paste(Image.fromarray(area_downsample(goal, GOAL).numpy()), (0, SIZE + MARGIN))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, SIZE + MARGIN, GOAL - 1, SIZE + MARGIN + GOAL - 1), outline="#d97706", width=2)
    draw.text((GOAL + 8, SIZE + MARGIN + 4), "goal", fill="#9a5400", font=FONT)
    if is_reached:
        draw.text((GOAL + 8, SIZE + MARGIN + 26), "reached", fill="#15803d", font=FONT)
    return picture


def animation(films: dict[str, list[Film]]) -> bytes:
    """All tasks side by side as an animated WebP; episodes of each follow one another, with a pause at the goal."""
    tracks = {name: list(_panels(own)) for name, own in films.items()}
    length = max(map(len, tracks.values()))
    pictures = []
    for step in range(length):
        width = len(tracks) * (SIZE + MARGIN) - MARGIN
        sheet = Image.new("RGB", (width, LABEL + SIZE + MARGIN + GOAL), "white")
        draw = ImageDraw.Draw(sheet)
        for column, (name, track) in enumerate(tracks.items()):
            left = column * (SIZE + MARGIN)
            sheet.paste(track[min(step, len(track) - 1)], (left, LABEL))
            draw.text((left + 2, 2), name, fill="black", font=FONT)
        pictures.append(sheet)
    buffer = io.BytesIO()
    pictures[0].save(
        buffer,
        format="WEBP",
        save_all=True,
        append_images=pictures[1:],
        duration=1000 // FRAMES_PER_SECOND,
        loop=0,
        quality=70,
        method=6,
        minimize_size=True,
    )
    return buffer.getvalue()


def _panels(films: list[Film]) -> Iterator[Image.Image]:
    for frames, goal in films:
        yield from (panel(frame, goal, is_reached=False) for frame in frames[:-1])
        yield from [panel(frames[-1], goal, is_reached=True)] * PAUSE


def main(out: Path = Path("docs/images/tasks.webp")) -> None:
    """Films the episodes and writes the picture."""
    films: dict[str, list[Film]] = {}
    with Progress("filming", EPISODES * (1 + len(SIMULATED)), "episodes") as bar:
        for name in ("two-room", *SIMULATED):
            found = reached_in_two_room() if name == "two-room" else reached_in_simulator(name)
            films[name] = []
            for each in found:
                films[name].append(each)
                bar.advance(note=f"{name}, {len(each[0]) - 1} steps")
                if len(films[name]) == EPISODES:
                    break
    write_bytes(out, animation(films))
    for name, own in films.items():
        print(f"{name}: {len(own)} goals reached, after {', '.join(str(len(frames) - 1) for frames, _ in own)} steps")
    print(out)


if __name__ == "__main__":
    main()
