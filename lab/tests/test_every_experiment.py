"""Every experiment, whole, at the smoke scale: its work is done, and its tables and figures are there."""

import json

import numpy as np
import pytest
from PIL import Image

from alewm_lab.experiments.framework import RECIPES
from alewm_lab.publishing.experiment_page import write_experiments_report, write_outcome
from smoke_runs import perform


@pytest.mark.parametrize("name", RECIPES)
def test_an_experiment_makes_what_it_promises(name, library, tmp_path):
    experiment, outcome = perform(name, library)
    assert experiment.name == name
    assert outcome.tables
    write_outcome(experiment, outcome, RECIPES[name].summary, f"alewm-lab experiment {name}", tmp_path)
    for table in outcome.tables:
        assert "Scale smoke" in table.caption
        assert table.rows
        texts = {suffix: (tmp_path / f"tables/{table.name}.{suffix}").read_text() for suffix in ("md", "tex", "csv")}
        assert len(texts["csv"].splitlines()) == 1 + len(table.rows)
        assert texts["tex"].count(r"\\") == 1 + len(table.rows)
        assert texts["md"].splitlines()[0].startswith(f"| {table.head[0]} |")
    for drawing in outcome.drawings:
        assert "Scale smoke" in drawing.caption
        assert drawing.commands
        with Image.open(tmp_path / f"figures/{drawing.name}.png") as picture:
            assert len(np.unique(np.asarray(picture.convert("L")))) > 10
        assert (tmp_path / f"figures/{drawing.name}.svg").read_bytes().startswith(b"<?xml")
    page = write_experiments_report([tmp_path], tmp_path).read_text()
    described = json.loads((tmp_path / "experiment.json").read_text())
    shown = {c for table in described["tables"] for row in table["rows"] for cell in row for c in cell["commands"]}
    assert shown
    assert all(command.replace("'", "&#x27;").replace('"', "&quot;") in page for command in shown)


def test_the_main_table_has_a_command_behind_every_success(library):
    _, outcome = perform("main-table", library)
    success, floors, hyperparameters, counts = outcome.tables
    assert [row[1].text for row in success.rows] == ["LeWM (best d)", "LeWM (d = 32)", "ALeWM"]
    for row in success.rows:
        for cell in row[2:]:
            assert [command.split()[1] for command in cell.commands] == ["train", "evaluate"] * 2
    assert {row[1].text for row in counts.rows} == {"Two-Room"}
    assert all(sum(int(part.split(": ")[1]) for part in row[3].text.split(", ")) == 4 for row in counts.rows)
    assert floors.rows[0][-1].text == "4"
    assert hyperparameters.rows[0][5].text in ("8", "32")
    assert len(outcome.findings) == 2


def test_rollouts_show_as_many_strips_as_there_are_disagreements(library):
    _, outcome = perform("rollouts", library)
    (row,) = outcome.tables[0].rows
    only_alewm, only_lewm, both, neither = (int(cell.text) for cell in row[1:])
    assert only_alewm + only_lewm + both + neither == 4
    assert len(outcome.drawings) == (only_alewm > 0) + (only_lewm > 0)
    assert len(outcome.films) == min(2, only_alewm) + min(2, only_lewm)
    assert all(film.gif.startswith(b"GIF8") for film in outcome.films)
