"""Copies of a demonstration stay on one side of a split, whether they are labelled or found."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from alewm.data.splits import find_families, load_or_draw_pairs, load_or_make_splits, split_by_episode, split_by_family
from alewm.data.store import EpisodeStore
from alewm.data.writer import StoreWriter
from alewm.errors import InputError
from toy_episodes import tape

PARTS = ("train", "validation", "test")


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(10, 60)), min_size=3, max_size=200), st.integers(0, 5))
def test_a_family_never_straddles_the_split(episodes: list[tuple[int, int]], seed: int) -> None:
    families, lengths = (np.array(values) for values in zip(*episodes, strict=True))
    eligible = lengths >= 26
    assume(len(np.unique(families[eligible])) >= 3)
    splits = split_by_family(lengths, families, seed)
    seen = [set(families[list(splits.part(part))].tolist()) for part in PARTS]
    assert sum(map(len, seen)) == len(set().union(*seen))
    assert splits.train
    for part, most in (("validation", 100), ("test", 200)):
        chosen = np.array(splits.part(part))
        assert 1 <= len(chosen) <= most
        assert eligible[chosen].all()
        # Evenly: a family has one episode fewer than another only if it has no more.
        counts = {int(f): int((families[chosen] == f).sum()) for f in np.unique(families[chosen])}
        for family, count in counts.items():
            assert count >= min(max(counts.values()) - 1, int((eligible & (families == family)).sum()))
    # What is in no part is a copy of something held out.
    unused = set(range(len(families))) - {e for part in PARTS for e in splits.part(part)}
    assert {int(families[e]) for e in unused} <= seen[1] | seen[2]
    assert splits == split_by_family(lengths, families, seed)


@given(st.integers(1, 30), st.integers(3, 400))
def test_as_many_are_held_out_as_there_are_enough_families_for(copies: int, num_families: int) -> None:
    families = np.repeat(np.arange(num_families), copies)
    splits = split_by_family(np.full(len(families), 30), families)
    for part, fewest, most, share in (("validation", 10, 100, 10), ("test", 20, 200, 5)):
        chosen = splits.part(part)
        held_out = len(np.unique(families[list(chosen)]))
        assert held_out == min(max(fewest, -(-most // copies)), max(1, num_families // share))
        assert len(chosen) == min(most, held_out * copies)


def write_copies(path: Path, num_families: int, copies: int, *, labelled: bool, spread: float = 0.0) -> Path:
    """Episodes in families: one length and start each, shuffled, other actions and later states."""
    rng = np.random.default_rng(0)
    with StoreWriter(path) as writer:
        for family in rng.permutation(np.repeat(np.arange(num_families), copies)):
            length = 30 + int(family) // 2
            start = np.random.default_rng(family).normal(size=3) * 100
            state = start + np.cumsum(rng.normal(size=(length, 3)), axis=0)
            state[0] = start + spread * rng.normal(size=3)
            label = {"family": np.full(length, 7 * family)} if labelled else {}
            writer.append(
                tape(0, length) | {"state": state.astype(np.float32), "demo": np.full(length, family)} | label
            )
    return path


@pytest.mark.parametrize("labelled", [True, False])
def test_labelled_and_found_families_are_the_same(tmp_path: Path, labelled: bool) -> None:
    store = EpisodeStore.open(write_copies(tmp_path / "a.h5", 12, 4, labelled=labelled))
    families = find_families(store)
    assert families is not None
    assert families.count == 12
    demonstrations = store.column("demo")[store.offsets]
    pairs = {(int(a), int(b)) for a, b in zip(families.of_episode, demonstrations, strict=True)}
    assert len(pairs) == 12
    splits = load_or_make_splits(store)
    origin = "as labelled in column 'family'" if labelled else "found by equal length and first 'state'"
    assert f"a.h5 has 12 families of copies, {origin}" in store.notes[0]
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (36, 4, 8)
    assert load_or_make_splits(EpisodeStore.open(store.path)) == splits


def test_episodes_that_only_look_alike_are_no_copies(tmp_path: Path) -> None:
    apart = EpisodeStore.open(write_copies(tmp_path / "apart.h5", 12, 2, labelled=False, spread=1.0))
    assert find_families(apart) is None
    alike = EpisodeStore.open(write_copies(tmp_path / "alike.h5", 1, 12, labelled=False))
    assert find_families(alike) is None
    assert load_or_make_splits(apart).train == split_by_episode(apart.lengths).train
    with StoreWriter(tmp_path / "blind.h5") as writer:
        writer.append({name: values for name, values in tape(0, 30).items() if name != "proprio"})
    assert find_families(EpisodeStore.open(tmp_path / "blind.h5")) is None


def test_splitting_copies_by_episode_has_files_of_its_own(tmp_path: Path) -> None:
    path = write_copies(tmp_path / "a.h5", 12, 4, labelled=True)
    store = EpisodeStore.open(path)
    by_episode = load_or_make_splits(store, "episode")
    assert not (tmp_path / "a.splits.json").exists()
    by_family = load_or_make_splits(store)
    assert sorted(e for part in PARTS for e in by_episode.part(part)) == list(range(48))
    for splits in (by_episode, by_family):
        pairs = load_or_draw_pairs(store, splits)
        assert tuple(pair.episode for pair in pairs.test) == splits.test
        assert load_or_draw_pairs(store, splits) == pairs
    again = EpisodeStore.open(path)
    assert (load_or_make_splits(again, "episode"), load_or_make_splits(again)) == (by_episode, by_family)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "a.h5",
        "a.pairs-by-episode.json",
        "a.pairs.json",
        "a.splits-by-episode.json",
        "a.splits.json",
    ]


def test_too_few_families_can_still_be_split_by_episode(tmp_path: Path) -> None:
    store = EpisodeStore.open(write_copies(tmp_path / "a.h5", 2, 5, labelled=True))
    with pytest.raises(InputError, match=r"Only 2 families .* \(--split episode\)"):
        load_or_make_splits(store)
    assert len(load_or_make_splits(store, "episode").train) == 7


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.arange(30), r"'family', row 1: family 1 in an episode that began in family 0"),
        (np.zeros(30), r"'family': one integer per row was expected, found float64 \[30\]"),
    ],
)
def test_wrong_labels_are_refused_by_row(tmp_path: Path, labels: np.ndarray, message: str) -> None:
    with StoreWriter(tmp_path / "a.h5") as writer:
        writer.append(tape(0, 30) | {"family": labels})
    with pytest.raises(InputError, match=message):
        find_families(EpisodeStore.open(tmp_path / "a.h5"))
