"""A publication keeps its rows, its bytes depend on nothing else, and a damaged one is refused."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alewm.errors import InputError
from alewm_lab.publishing.publication import (
    publication_rows,
    publication_text,
    read_group,
    read_publication,
    write_publication,
)

ROOT = Path(__file__).parents[2]
SMALL = st.integers(-(10**6), 10**6)
CELLS = st.one_of(st.booleans(), SMALL, st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5))
COLUMNS = st.dictionaries(st.sampled_from(["success", "q/8", "a, b", "steps"]), CELLS, min_size=1)


@st.composite
def rows(draw):
    table = draw(st.sampled_from(["run", "metric", "latent", "evaluation", "episode", "measurement"]))
    owner = {"table": table, "run": draw(st.sampled_from(["a", "b"]))}
    if table in ("evaluation", "episode"):
        owner["settings"] = draw(st.sampled_from(["", "validation"]))
    if table == "measurement":
        owner["measurement"] = "probes"
    return owner | draw(COLUMNS)


def as_set(found):
    return sorted(json.dumps(row, sort_keys=True) for row in found)


@given(st.lists(rows(), min_size=1, max_size=12))
def test_rows_survive_a_file(some):
    text = publication_text(some)
    found = publication_rows(text, Path("x"))
    assert as_set(found) == as_set(some)
    for owner in ("a", "b"):
        for table in ("metric", "episode"):
            kept, given_ = (
                [row for row in each if (row["run"], row["table"], row.get("settings", "")) == (owner, table, "")]
                for each in (found, some)
            )
            assert kept == given_, "rows of one owner keep their order"
    assert publication_text(found) == text


def test_a_file_has_neither_a_time_nor_a_name_in_it(tmp_path):
    text = publication_text([{"table": "run", "run": "a"}])
    for name in ("one", "two"):
        write_publication(tmp_path / f"{name}.jsonl.gz", text)
    one, two = ((tmp_path / f"{name}.jsonl.gz").read_bytes() for name in ("one", "two"))
    assert one == two
    # RFC 1952: no optional fields, time 0, slowest algorithm, system unknown.
    assert one[:10] == bytes([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 2, 255])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "line 1: expected a `table`"),
        ("[1]", "line 1: expected a `table`"),
        ('{"table":"run","run":"a"}\n{"table":', "line 2, is not JSON"),
        ('{"table":"episodes","run":"a"}', "line 1: expected a `table`"),
        ('{"table":"episode","run":"a"}', "line 1: expected a `table`"),
        (
            '{"table":"latent","run":"a","coordinate":[1,2],"variance":[1]}',
            r"line 1: columns of one length .* \[1, 2\]",
        ),
    ],
)
def test_a_damaged_line_is_refused(tmp_path, text, message):
    write_publication(tmp_path / "x.jsonl.gz", text)
    with pytest.raises(InputError, match=message):
        read_publication(tmp_path / "x.jsonl.gz")


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-9], lambda raw: b"x" + raw, lambda raw: raw[:12] + b"x" + raw[13:]]
)
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "x.jsonl.gz"
    write_publication(path, publication_text([{"table": "run", "run": "a"}] * 9))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"x.jsonl.gz is not a publication"):
        read_publication(path)


def test_what_two_files_of_a_group_hold_is_refused(tmp_path):
    for name, number in (("a", 1), ("b", 2)):
        rows = [{"table": "run", "run": "same"}, {"table": "evaluation", "run": "same", "settings": f"budget-{number}"}]
        write_publication(tmp_path / f"{name}.jsonl.gz", publication_text(rows[1:]))
    assert len(read_group(tmp_path)) == 2
    for name in ("a", "b"):
        write_publication(tmp_path / f"{name}.jsonl.gz", publication_text(rows[:1]))
    with pytest.raises(InputError, match=r"The run of same is published twice: in .*a.jsonl.gz and .*b.jsonl.gz"):
        read_group(tmp_path)


def test_the_documented_way_to_read_a_file_works(monkeypatch):
    """With stand-ins for what it takes from pandas: a frame repeats what is no list, and frames are joined."""
    snippet = re.search(r"```python\n(.+?)```", (ROOT / "results/README.md").read_text(), re.DOTALL)[1]
    assert len(snippet.split("\n\n")[-1].splitlines()) == 2, "an import, then two lines"

    def frame(line):
        length = len(next(value for value in line.values() if isinstance(value, list)))
        return [{k: v[i] if isinstance(v, list) else v for k, v in line.items()} for i in range(length)]

    pandas = SimpleNamespace(DataFrame=frame, concat=lambda frames: [row for each in frames for row in each])
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    monkeypatch.chdir(ROOT)
    found: dict = {}
    exec(snippet, found)
    path = ROOT / re.search(r'"(results/\S+)"', snippet)[1]
    assert found["episodes"] == [row for row in read_publication(path) if row["table"] == "episode"]
