"""Small files beside a data file: whole for every reader, whoever else writes them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from alewm.data.schema import beside, write_sidecar
from alewm.files import read_object


def test_writers_of_one_sidecar_do_not_disturb_each_other(tmp_path: Path) -> None:
    """As many processes do that begin at once on several machines, where some have the same number."""
    path, values = beside(tmp_path / "a.h5", "splits"), {"train": list(range(2000))}
    with ThreadPoolExecutor(4) as threads:
        for written in [threads.submit(write_sidecar, path, values) for _ in range(200)]:
            written.result()
    assert read_object(path) == values
    assert [each.name for each in tmp_path.iterdir()] == ["a.splits.json"]


def test_a_file_that_cannot_be_replaced_is_the_only_one_that_the_message_names(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    with pytest.raises(OSError, match=r"Is a directory: '[^']*/a\.json'$"):
        write_sidecar(tmp_path / "a.json", {})
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]
