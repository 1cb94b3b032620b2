import errno
import json
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alewm import files
from alewm.data.splits import (
    EvaluationPairs,
    Splits,
    draw_pairs,
    draw_several_pairs,
    held_out_counts,
    load_or_draw_pairs,
    load_or_make_splits,
    split_by_episode,
    split_by_family,
)
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from alewm.evaluation.held_out import _stored_pairs
from toy_episodes import write_tape


@given(st.lists(st.integers(1, 100), min_size=3, max_size=400).filter(lambda n: sum(x >= 26 for x in n) >= 3))
def test_a_split_covers_every_episode_once_and_holds_out_no_short_one(lengths: list[int]) -> None:
    sizes = np.array(lengths)
    splits = split_by_episode(sizes)
    parts = [*splits.train, *splits.validation, *splits.test]
    assert sorted(parts) == list(range(len(lengths)))
    assert sizes[[*splits.validation, *splits.test]].min() >= 26
    assert splits.train
    assert splits.validation
    assert splits.test
    assert splits == split_by_episode(sizes)


def test_the_numbers_held_out() -> None:
    assert held_out_counts(10_000) == held_out_counts(1_000) == (100, 200)
    assert held_out_counts(300) == (30, 60)
    assert held_out_counts(3) == (1, 1)
    with pytest.raises(InputError, match=r"Only 2 episodes have 26 rows.*Record longer episodes, or more"):
        held_out_counts(2)


def test_another_seed_holds_out_others() -> None:
    lengths = np.full(1000, 92)
    assert split_by_episode(lengths).test != split_by_episode(lengths, seed=1).test


def test_copies_of_one_demonstration_never_face_each_other() -> None:
    families = np.repeat(np.arange(110), 30)
    lengths = np.full(len(families), 90)
    splits = split_by_family(lengths, families)
    held_out = [{int(families[e]) for e in part} for part in (splits.validation, splits.test)]
    trained = {int(families[e]) for e in splits.train}
    assert (len(splits.validation), len(splits.test)) == (100, 200)
    assert (len(held_out[0]), len(held_out[1]), len(trained)) == (10, 20, 80)
    assert not held_out[0] & held_out[1]
    assert not (held_out[0] | held_out[1]) & trained
    for part in (splits.validation, splits.test):
        assert set(np.unique(families[list(part)], return_counts=True)[1]) == {10}
    with pytest.raises(InputError, match=r"Only 2 families .* \(--split episode\)"):
        split_by_family(lengths[:60], families[:60])


def test_splits_and_pairs_are_made_once_and_then_read(tmp_path: Path) -> None:
    store = EpisodeStore.open(write_tape(tmp_path / "a.h5", [30, 22, 40, 26, 31] * 4))
    splits = load_or_make_splits(store)
    pairs = load_or_draw_pairs(store, splits)
    assert "Held out for validation: 1 (of large files 100); for test: 3 (of large files 200)." in store.notes[0]
    again = EpisodeStore.open(store.path)
    assert load_or_make_splits(again) == splits
    assert load_or_draw_pairs(again, splits) == pairs
    assert tuple(pair.episode for pair in pairs.part("test")) == splits.part("test")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5", "a.pairs.json", "a.splits.json"]
    with pytest.raises(InputError, match="Unknown split 'tset'"):
        splits.part("tset")
    with pytest.raises(InputError, match="no evaluation pairs for 'train'"):
        pairs.part("train")


def test_sidecars_of_other_data_are_refused(tmp_path: Path) -> None:
    path = write_tape(tmp_path / "a.h5", [30] * 5)
    splits = load_or_make_splits(EpisodeStore.open(path))
    load_or_draw_pairs(EpisodeStore.open(path), splits)
    stored = {name: (tmp_path / f"a.{name}.json").read_text() for name in ("splits", "pairs")}
    for name, text in stored.items():
        (tmp_path / f"a.{name}.json").write_text(json.dumps(json.loads(text) | {"seed": 1}))
    with pytest.raises(InputError, match="made with split seed 1, not 3072"):
        load_or_make_splits(EpisodeStore.open(path))
    with pytest.raises(InputError, match="another split or pair seed"):
        load_or_draw_pairs(EpisodeStore.open(path), splits)
    for name, text in stored.items():
        (tmp_path / f"a.{name}.json").write_text(text)
    path.unlink()
    store = EpisodeStore.open(write_tape(path, [31] * 5))
    with pytest.raises(InputError, match=r"a\.splits\.json was made for data with fingerprint"):
        load_or_make_splits(store)
    with pytest.raises(InputError, match=r"a\.pairs\.json was made for data with fingerprint"):
        load_or_draw_pairs(store, splits)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("{}", "lacks the field 'train'"),
        ("[]", "lacks the field 'train'"),
        ('{"train": [0], "validation": [1], "test": [2], "seed": 3072}', "lacks the field 'fingerprint'"),
    ],
)
def test_a_damaged_sidecar_is_refused(tmp_path: Path, text: str, message: str) -> None:
    store = EpisodeStore.open(write_tape(tmp_path / "a.h5", [30] * 5))
    (tmp_path / "a.splits.json").write_text(text)
    with pytest.raises(InputError, match=message):
        load_or_make_splits(store)


def test_a_folder_that_cannot_be_written_is_left_by_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked, new_draft = tmp_path / "locked", files._new_draft
    locked.mkdir()
    data = write_tape(locked / "a.h5", [30] * 5)

    def open_unless_locked(folder: Path) -> BinaryIO:
        if folder == locked:  # a mode of the folder would not keep a superuser from writing
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return new_draft(folder)

    monkeypatch.setattr(files, "_new_draft", open_unless_locked)
    with EpisodeStore.open(data) as store:
        with pytest.raises(InputError, match=r"locked/a\.h5 cannot be written.*Make a link"):
            load_or_make_splits(store)
        with pytest.raises(InputError, match=r"locked/a\.h5 cannot be written.*Make a link"):
            load_or_draw_pairs(store, split_by_episode(store.lengths))
    (tmp_path / "link.h5").symlink_to(data)
    with EpisodeStore.open(tmp_path / "link.h5") as store:
        load_or_draw_pairs(store, load_or_make_splits(store))
    assert {path.name for path in tmp_path.glob("link.*.json")} == {"link.splits.json", "link.pairs.json"}


def test_every_valid_start_is_drawn_and_every_goal_is_25_steps_later(tmp_path: Path) -> None:
    store = EpisodeStore.open(write_tape(tmp_path / "a.h5", [26, 28, 60]))
    drawn = [draw_pairs(store, [0, 1, 2], seed=seed) for seed in range(300)]
    for episode, length in enumerate([26, 28, 60]):
        pairs = [pairs[episode] for pairs in drawn]
        assert {pair.start_step for pair in pairs} == set(range(length - 25))
        for pair in pairs:
            assert pair.goal_step - pair.start_step == pair.goal_row - pair.start_row == 25
            assert pair.start_row == store.offsets[episode] + pair.start_step


def test_a_pair_does_not_depend_on_the_other_episodes(tmp_path: Path) -> None:
    store = EpisodeStore.open(write_tape(tmp_path / "a.h5", [40, 50, 60]))
    assert draw_pairs(store, [2])[0] == draw_pairs(store, [0, 1, 2])[2]


def test_several_pairs_have_different_starts_and_every_start_is_drawn(tmp_path: Path) -> None:
    store = EpisodeStore.open(write_tape(tmp_path / "a.h5", [60, 28, 26]))
    found = set()
    for seed in range(100):
        pairs = draw_several_pairs(store, [0, 1, 2], 5, seed)
        starts = [[pair.start_step for pair in pairs if pair.episode == episode] for episode in range(3)]
        assert [len(set(each)) for each in starts] == [5, 3, 1]  # as many as there are
        assert starts[1:] == [[0, 1, 2], [0]]
        assert all(pair.goal_row - pair.start_row == pair.goal_step - pair.start_step == 25 for pair in pairs)
        found |= set(starts[0])
    assert found == set(range(35))
    assert draw_several_pairs(store, [2, 0], 5)[1:] == draw_several_pairs(store, [0], 5)


def test_several_pairs_are_kept_beside_the_single_ones_and_change_nothing_about_them(tmp_path: Path) -> None:
    store = EpisodeStore.open(write_tape(tmp_path / "a.h5", [40, 28, 60, 50, 45] * 4))
    splits = load_or_make_splits(store)
    load_or_draw_pairs(store, splits)
    before, known = (tmp_path / "a.pairs.json").read_bytes(), len(store.notes)
    several = load_or_draw_pairs(store, splits, per_episode=5)
    lengths = [store.lengths[episode] for episode in splits.test]
    assert len(several.test) == sum(min(5, length - 25) for length in lengths)
    assert (28 in lengths) == any("as many as they can" in note and " test " in note for note in store.notes[known:])
    assert load_or_draw_pairs(EpisodeStore.open(store.path), splits, per_episode=5) == several
    assert EvaluationPairs.load(tmp_path / "a.pairs-5.json").seed == 43
    assert (tmp_path / "a.pairs.json").read_bytes() == before
    (tmp_path / "a.pairs-5.json").rename(tmp_path / "a.pairs-4.json")
    with pytest.raises(InputError, match=r"pairs-4\.json belongs to another split or pair seed"):
        load_or_draw_pairs(store, splits, per_episode=4)
    with pytest.raises(InputError, match="at least one pair, asked 0"):
        load_or_draw_pairs(store, splits, per_episode=0)


def test_an_episode_too_short_for_a_goal_is_refused(tmp_path: Path) -> None:
    store = EpisodeStore.open(write_tape(tmp_path / "a.h5", [25]))
    with pytest.raises(InputError, match=r"Episode 0 .* has 25 rows; .* need 26"):
        draw_pairs(store, [0])


def test_sidecars_are_plain_json(tmp_path: Path) -> None:
    store = EpisodeStore.open(write_tape(tmp_path / "a.h5", [30] * 5))
    load_or_make_splits(store)
    assert json.loads((tmp_path / "a.splits.json").read_text())["fingerprint"] == store.fingerprint


def test_pairs_of_training_episodes_are_of_those_long_enough_to_have_one(tmp_path: Path) -> None:
    splits = Splits(train=(0, 1, 2, 3), validation=(), test=(), seed=0, fingerprint="")
    with EpisodeStore.open(write_tape(tmp_path / "a.h5", [30, 25, 26, 40])) as store:
        for most, expected in ((None, [0, 2, 3]), (2, [0, 2])):
            assert [pair.episode for pair in _stored_pairs(store, splits, "train", most)] == expected


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("splits", '"test": [', '"test": [0, '),
        ("splits", '"test": [', '"test": [999, '),
        ("splits", '"test": [', '"test": [-1, '),
        ("pairs", '"goal_step": ', '"goal_step": 1'),
        ("pairs", '"start_row": ', '"start_row": 1'),
        ("pairs", '"start_step": ', '"start_step": 1'),
    ],
)
def test_splits_and_pairs_that_the_file_cannot_have_are_refused(tmp_path: Path, name: str, old: str, new: str) -> None:
    store = EpisodeStore.open(write_tape(tmp_path / "a.h5", [30, 22, 40, 26, 31] * 4))
    load_or_draw_pairs(store, load_or_make_splits(store))
    path = tmp_path / f"a.{name}.json"
    content = json.dumps(json.loads(path.read_text()))
    assert old in content
    path.write_text(content.replace(old, new, 1))
    with pytest.raises(InputError, match=rf"a\.{name}\.json .*Restore it from a copy, or delete it"):
        load_or_draw_pairs(store, load_or_make_splits(store))
