"""The pairs a run is evaluated on: those that travel with a shared model, or those stored beside its data file."""

import sys
from dataclasses import replace
from pathlib import Path

from alewm.data.pairs import EvaluationPair, draw_pairs, draw_several_pairs, load_or_draw_pairs
from alewm.data.splits import MIN_HELD_OUT_LENGTH, NUM_TEST, Splits
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from alewm.evaluation.closed_loop import GoalPairs
from alewm.evaluation.environment import state_columns_in, task_of
from alewm.evaluation.own_data import open_own_data, own_data_path
from alewm.evaluation.settings import EvaluationSettings, Split
from alewm.evaluation.travelling_pairs import load_pairs, pairs_name
from alewm.planning.noise import stream_seed
from alewm.training.data_sets import DataSet


def find_pairs(run: Path, learned: DataSet, settings: EvaluationSettings, data_path: Path | None) -> GoalPairs:
    """The pairs `settings` asks for, of the data `run` learned from; the file is at `data_path` if it has moved."""
    travelling = run / pairs_name(learned)
    is_single = settings.pairs_per_episode == 1
    if data_path is None and settings.split != "train" and is_single and travelling.is_file():
        pairs, where = load_pairs(travelling, settings.split, learned.fingerprint), travelling
    else:
        where = own_data_path(run, learned, data_path)
        pairs = pairs_in_data(
            run, where, learned, settings.split, settings.num_episodes, per_episode=settings.pairs_per_episode
        )
    if settings.num_episodes is not None and settings.num_episodes > len(pairs):
        raise InputError(
            f"--episodes {settings.num_episodes} were asked for, but the {settings.split} split of {where} has "
            f"{len(pairs)} pairs."
        )
    return pairs if settings.num_episodes is None else pairs.take(range(settings.num_episodes))


def pairs_in_data(
    run: Path,
    path: Path,
    learned: DataSet,
    split: Split,
    most_training: int | None = None,
    *,
    per_episode: int = 1,
) -> GoalPairs:
    """The pairs of `split` in the data file `path`, which must be the one `run` learned from.

    Of training episodes there are `most_training`, or as many as of test episodes.
    """
    task = task_of(learned)
    with open_own_data(run, learned, path) as (store, splits):
        names = state_columns_in(store, task)
        num_known = len(store.notes)
        stored = _stored_pairs(store, splits, split, most_training, per_episode)
        for note in store.notes[num_known:]:
            print(note, file=sys.stderr)
        pairs = GoalPairs.gather(stored, store.column, names, store.actions)
    if per_episode > 1:
        # The episode alone would give all its pairs the same noise.
        keys = zip(pairs.episodes, pairs.start_steps, strict=True)
        pairs = replace(pairs, streams=tuple(stream_seed("pair", *key) for key in keys))
    return pairs


def _stored_pairs(
    store: EpisodeStore, splits: Splits, split: Split, most_training: int | None, per_episode: int = 1
) -> tuple[EvaluationPair, ...]:
    if split != "train":
        return load_or_draw_pairs(store, splits, per_episode=per_episode).part(split)
    # Not stored, since no result is selected or published on them; drawn alike, so everyone meets the same.
    long_enough = [episode for episode in splits.train if store.lengths[episode] >= MIN_HELD_OUT_LENGTH]
    chosen = long_enough[: most_training or NUM_TEST]
    return draw_pairs(store, chosen) if per_episode == 1 else draw_several_pairs(store, chosen, per_episode)
