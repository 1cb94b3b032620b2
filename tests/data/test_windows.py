import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alewm.data.windows import WindowIndex, WindowShape
from alewm.errors import InputError


def index_of(lengths: list[int], shape: WindowShape) -> WindowIndex:
    sizes = np.array(lengths, dtype=np.int64)
    return WindowIndex(np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes, shape)


def test_the_alignment_of_the_drawing_on_a_tape_of_numbered_rows() -> None:
    shape = WindowShape()
    starts = np.array([3])
    assert shape.frame_rows(starts).tolist() == [[3, 8, 13, 18]]
    numbered = np.stack([np.arange(60), np.arange(60) + 100], axis=1)
    blocks = shape.action_blocks(numbered, starts)
    assert blocks.shape == (1, 3, 10)
    # Block f: the five actions from frame f to frame f + 1, in time order, each action's numbers together.
    assert blocks[0, 0].tolist() == [3, 103, 4, 104, 5, 105, 6, 106, 7, 107]
    assert blocks[0, 1, ::2].tolist() == [8, 9, 10, 11, 12]
    assert blocks[0, 2, ::2].tolist() == [13, 14, 15, 16, 17]


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    shape=st.builds(WindowShape, st.integers(1, 5), st.integers(1, 6)),
)
def test_the_windows_are_all_those_that_fit_inside_an_episode(lengths: list[int], shape: WindowShape) -> None:
    index = index_of(lengths, shape)
    expected = [
        int(offset) + start
        for offset, length in zip(index.offsets, lengths, strict=True)
        for start in range(length - shape.span + 1)
    ]
    assert index.starts(np.arange(len(index))).tolist() == expected
    assert len(index) == len(expected)


@given(st.lists(st.integers(20, 101), min_size=1, max_size=50))
def test_the_count_follows_the_published_formula(lengths: list[int]) -> None:
    assert len(index_of(lengths, WindowShape())) == sum(lengths) - 19 * len(lengths)


def test_the_published_count() -> None:
    lengths = [92] * 9191 + [93] * 809  # 10,000 episodes, 920,809 rows
    assert sum(lengths) == 920_809
    assert len(index_of(lengths, WindowShape())) == 730_809


def test_the_last_action_of_an_episode_is_never_used() -> None:
    shape = WindowShape()
    index = index_of([50, 40], shape)
    rows = shape.action_rows(index.starts(np.arange(len(index))))
    assert not np.isin([49, 89], rows).any()


def test_an_impossible_window_is_refused() -> None:
    with pytest.raises(InputError, match="at least one frame"):
        WindowShape(frame_skip=0)
