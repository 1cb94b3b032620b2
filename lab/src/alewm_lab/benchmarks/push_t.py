"""Push-T: physics and drawing per second on one core, how often its expert succeeds, how exactly humans replay."""

import time
from pathlib import Path

import cv2
import numpy as np

from alewm.envs.push_t.demonstrations import read_demonstrations, relative_demonstrations, training_demonstrations
from alewm.envs.push_t.expert import Demonstration, demonstrate
from alewm.envs.push_t.physics import SUBSTEPS, ContactPoint, PushTWorld
from alewm.envs.push_t.render import PushTRenderer
from alewm.errors import InputError
from alewm.evaluation.statistics import Proportion
from alewm.progress import Progress
from alewm_lab.benchmarks.timing import print_line

_TIMED = 8  # demonstrations whose steps and frames are timed
_REPEATS = 5


def bench_push_t(*, demonstrations: int, seed: int) -> None:
    """Prints the rates and the share of demonstrations that reach their first pose."""
    if demonstrations < 1:
        raise InputError(f"--demonstrations must be at least 1, got {demonstrations}.")
    made, began = [], time.perf_counter()
    with Progress("demonstrating", demonstrations, "demonstrations") as bar:
        for index in range(demonstrations):
            made.append(demonstrate(seed, index))
            bar.advance()
    seconds = (time.perf_counter() - began) / demonstrations
    reached = Proportion.of([one.first_reached is not None for one in made])
    steps = [one.first_reached for one in made if one.first_reached is not None]
    fulfilled = sum(one.poses_pursued - 1 for one in made)
    low, high = reached.interval
    share = f"{100 * (reached.rate or 0):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    print(f"{'expert':<10}{reached.successes} of {reached.trials} reach their pose, {share}", end="")
    print(f", after {np.median(steps):.0f} steps (median)" if steps else "")
    print(f"{'':<10}{fulfilled / len(made):.2f} poses fulfilled and {seconds:.2f} s per demonstration")

    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    physics, drawing = _rates(made[:_TIMED])
    cv2.setNumThreads(threads)
    print(f"{'physics':<10}{physics:,.0f} environment steps/s, {physics * SUBSTEPS:,.0f} substeps/s, one core")
    print(f"{'drawing':<10}{drawing:,.0f} frames/s, one core")
    print_line(
        "push-t",
        demonstrations=demonstrations,
        seed=seed,
        expert_success=reached.rate,
        expert_success_interval=reached.interval,
        seconds_per_demonstration=seconds,
        env_steps_per_second=physics,
        substeps_per_second=physics * SUBSTEPS,
        frames_per_second=drawing,
    )


def bench_human_demonstrations(path: Path) -> None:
    """Prints how far from where it ended the block ends when every demonstration in `path` is replayed."""
    file = read_demonstrations(path)
    replayed = relative_demonstrations(file, range(len(file.ends)))
    errors = np.array([demonstration.error for demonstration in replayed])
    training = set(training_demonstrations(len(file.ends)))
    actions = np.concatenate([each.actions for each in replayed if each.number in training])
    mean, std = actions.mean(0), actions.std(0)
    lengths = np.diff(file.ends, prepend=0)
    held_out_rows = sum(int(rows) for number, rows in enumerate(lengths) if number not in training)
    print(f"{len(errors)} demonstrations, {len(file.states):,} rows, {lengths.min()} to {lengths.max()} each")
    print(
        f"block after a replay, pixels from where it ended: median {np.median(errors):.2g}, mean {errors.mean():.2g}, "
        f"at most {errors.max():.2g}; {(errors < 1).sum()} below 1"
    )
    print(
        f"training file: {len(training)} of them; the others have {held_out_rows:,} rows; actions of mean "
        f"{mean[0]:.5f}, {mean[1]:.5f} and std {std[0]:.5f}, {std[1]:.5f} without noise"
    )
    print_line(
        "push-t",
        human=str(path),
        fingerprint=file.fingerprint,
        demonstrations=len(errors),
        rows=len(file.states),
        error_median=float(np.median(errors)),
        error_mean=float(errors.mean()),
        error_max=float(errors.max()),
        held_out_rows=held_out_rows,
    )


def _rates(demonstrations: list[Demonstration]) -> tuple[float, float]:
    """Environment steps and frames per second of processor time, over whole demonstrations: medians of repetitions.

    Processor time, because one core's work is asked for and others may be using the machine.
    """
    physics, drawing, draw = [], [], PushTRenderer()
    for _ in range(_REPEATS):
        seen: list[tuple[np.ndarray, list[ContactPoint]]] = []
        num_steps = sum(len(one.actions) for one in demonstrations)
        stepping = 0.0
        for one in demonstrations:
            world, actions = PushTWorld(one.start), one.actions.astype(np.float64).tolist()
            for action_x, action_y in actions:
                began = time.process_time()
                world.step(action_x, action_y)
                stepping += time.process_time() - began
                seen.append((world.state(), world.contacts()))
        began = time.process_time()
        for state, contacts in seen:
            draw(state, contacts)
        drawing.append(len(seen) / (time.process_time() - began))
        physics.append(num_steps / stepping)
    return float(np.median(physics)), float(np.median(drawing))
