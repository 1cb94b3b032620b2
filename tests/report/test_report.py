"""A page made from run folders alone: what it shows, what it survives, what it refuses."""

import base64
import json
import re
from html.parser import HTMLParser

import pytest

from alewm.capacity.support import polynomial_prior
from alewm.errors import InputError
from alewm.evaluation.animations import film, write_gif
from alewm.evaluation.closed_loop import GoalPairs
from alewm.evaluation.success import evaluate_planner, write_records
from alewm.planning.planner import Planner, PlanningConfig
from alewm.planning.search import CEMConfig
from alewm.report.gather import read_run
from alewm.report.page import write_report
from point_world import ACTION_MEAN, ACTION_STD, KnownWorld, PointEnvs, rows

VOID = {"meta", "img", "source", "wbr", "input"}


class Outline(HTMLParser):
    """Checks that tags close in order, and remembers what the page refers to and says."""

    def __init__(self, text):
        super().__init__()
        self.open, self.addresses, self.text = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "srcset", "href")]
        self.text += [value for name, value in attrs if name == "alt"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def evaluated():
    start, goal = rows(count=6)
    pairs = GoalPairs(tuple(range(6)), (0,) * 6, (25,) * 6, start, goal)
    config = PlanningConfig(cem=CEMConfig(num_candidates=40, num_iterations=5, num_elites=5))
    planner = Planner(KnownWorld(), ACTION_MEAN, ACTION_STD, config)
    return pairs, evaluate_planner(lambda _: PointEnvs(), pairs, planner, polynomial_prior(3, 1.0))


def metrics(steps=20):
    for step in range(0, 50 * steps, 50):
        share = step / (50 * steps)
        yield {"step": step, "prediction_loss": 10 * 0.7 ** (step / 50), "regularizer": 1 - share / 2}
        yield {"step": step, "q/2": 0.5 + share / 3, "q/4": 0.3 - share / 5, "q/6": 0.2 - share * 2 / 15}
    yield {"step": 50 * steps, "masked_variance": [1.0, 0.9, 0.4, 0.4, 0.1, 0.1], "rank": None}


def make_run(folder, evaluated=None, **config):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"method": "alewm", "optimizer": {"rate": 5e-5}, **config}))
    (folder / "provenance.json").write_text(json.dumps({"command": "alewm train tiny", "versions": {"torch": "2.13"}}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in metrics()))
    if evaluated:
        pairs, found = evaluated
        result = {**found.result, "prior_survival": [1.0, 1.0, 0.5, 0.5, 0.2, 0.2]}
        (folder / "result.json").write_text(json.dumps(result))
        write_records(folder / "episodes.jsonl", found.records)
        for index, (frames, goal) in enumerate(
            film(PointEnvs(), pairs.take([0, 1]), found.outcome.actions[:2], found.outcome.steps[:2])
        ):
            write_gif(folder / "animations" / f"episode-{index:05d}-reached-k2.gif", frames, goal)
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory, evaluated):
    folder = tmp_path_factory.mktemp("report")
    return write_report([make_run(folder / "run", evaluated)], folder / "report")


def test_a_report_holds_everything_and_needs_nothing(page):
    outline = Outline(page.read_text())
    text = "".join(outline.text)
    for title in ("Success", "Capacity", "Masked variance", "Curves", "Films", "Configuration and provenance"):
        assert title in text
    for shown in ("100.0 %", "alewm train tiny", "optimizer.rate", "versions.torch", "prediction loss", "q shift"):
        assert shown in text
    assert all(address.startswith("data:") for address in outline.addresses)
    assert page.read_text().count('data-sheet="data:image/webp') == 2
    assert "reached 6 of 6 goals" in text
    assert not re.search(r"https?://", re.sub(r"data:[^\"]*", "", page.read_text()))


def test_embedded_figures_are_the_files_beside_the_page(page):
    embedded = {
        base64.b64decode(address.partition(",")[2])
        for address in Outline(page.read_text()).addresses
        if "svg" in address
    }
    kept = {path.read_bytes() for path in (page.parent / "figures").iterdir()}
    assert embedded == kept
    names = {path.name for path in (page.parent / "figures").iterdir()}
    assert {"success.svg", "capacities.svg", "dynamics-run.svg", "variance-run.svg"} <= names


def test_equal_folders_give_equal_pages(page, tmp_path):
    again = write_report([page.parent.parent / "run"], tmp_path / "again")
    assert again.read_bytes() == page.read_bytes()


def test_a_comparison_says_what_differs_and_draws_runs_together(tmp_path, evaluated):
    first = make_run(tmp_path / "alewm", evaluated, seed=3072)
    second = make_run(tmp_path / "lewm", evaluated, seed=3073)
    text = "".join(Outline(write_report([first, second], tmp_path / "report").read_text()).text)
    differs = text[text.index("What differs") : text.index("Configuration and provenance")]
    assert "seed" in differs
    assert "3073" in differs
    assert "optimizer.rate" not in differs


def test_runs_with_one_name_are_told_apart(tmp_path):
    folders = [make_run(tmp_path / task / "seed-0") for task in ("two-room", "push-t")]
    text = write_report(folders, tmp_path / "report").read_text()
    assert "two-room/seed-0" in text
    assert "push-t/seed-0" in text


def test_a_run_that_is_still_training_has_a_page(tmp_path):
    run = make_run(tmp_path / "young")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1050, "predic')
    text = " ".join(Outline(write_report([run], tmp_path / "report").read_text()).text)
    assert "Not evaluated yet" in text


def test_a_run_that_has_not_begun_has_a_page(tmp_path):
    run = make_run(tmp_path / "new")
    (run / "metrics.jsonl").unlink()
    (run / "provenance.json").unlink()
    Outline(write_report([run], tmp_path / "report").read_text())


def test_what_runs_say_is_never_markup(tmp_path):
    run = make_run(tmp_path / "a<b>&c", note="<script>alert(1)</script>")
    text = write_report([run], tmp_path / "report").read_text()
    assert text.count("<script") == 1, "the page's own"
    assert "&lt;script&gt;" in text
    Outline(text)


def test_capacity_dynamics_are_grouped_by_data_set(tmp_path):
    run = make_run(tmp_path / "run")
    entries = [{"step": s, "q/two-room/8": 0.5, "q/two-room/16": 0.5, "q/reacher/8": 1.0} for s in (0, 50)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    groups = read_run(run).capacity_dynamics()
    assert {group: list(curves) for group, curves in groups.items()} == {"reacher": [8], "two-room": [8, 16]}
    write_report([run], tmp_path / "report")


def test_time_that_has_passed_is_no_curve(tmp_path):
    run = make_run(tmp_path / "run")
    entries = [{"step": step, "loss": 1.0, "windows_per_second": 9.0, "seconds": 2.0 * step} for step in (1, 2)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    text = write_report([run], tmp_path / "report").read_text()
    assert 'alt="windows per second"' in text
    assert 'alt="seconds"' not in text


def test_values_that_are_no_numbers_are_left_out(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": NaN}\n{"step": 2, "loss": 3.0, "ends": true}\n')
    assert read_run(run).scalars() == {"loss": ([2.0], [3.0])}
    write_report([run], tmp_path / "report")


def test_what_a_run_ended_with_is_in_its_result_or_else_in_its_last_metrics(tmp_path, evaluated):
    run = read_run(make_run(tmp_path / "run", evaluated))
    assert run.latest("success_rate") == evaluated[1].result["success_rate"]
    assert run.latest("regularizer") == [entry["regularizer"] for entry in metrics() if "regularizer" in entry][-1]
    assert run.latest("nothing of the kind") is None


def test_long_curves_are_averaged_not_cut(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text("".join(f'{{"step": {s}, "loss": {s % 2}}}\n' for s in range(10_000)))
    page = write_report([run], tmp_path / "report")
    assert page.stat().st_size < 400_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", r"config.json is not JSON"),
        ("result.json", "[1]", r"result.json must hold a JSON object, found list"),
        ("metrics.jsonl", '{"a": 1}\n{"step": 1}\n', r"metrics.jsonl, line 1: expected a JSON object with a numeric"),
        ("metrics.jsonl", '{"st\n{"step": 1}\n', r"metrics.jsonl, line 1, is not JSON"),
    ],
)
def test_broken_files_are_named_and_an_old_page_stays(tmp_path, name, content, message):
    run = make_run(tmp_path / "run")
    page = tmp_path / "report" / "index.html"
    page.parent.mkdir()
    page.write_text("an older page")
    (run / name).write_text(content)
    with pytest.raises(InputError, match=message):
        write_report([run], tmp_path / "report")
    assert page.read_text() == "an older page"


def test_what_is_no_run_is_refused(tmp_path):
    (tmp_path / "stray").mkdir()
    (tmp_path / "stray" / "notes.txt").write_text("")
    with pytest.raises(InputError, match=r"stray is no run folder: expected config.json in it, found notes.txt"):
        write_report([tmp_path / "stray"], tmp_path / "report")
    with pytest.raises(InputError, match="no such folder"):
        write_report([tmp_path / "absent"], tmp_path / "report")
    with pytest.raises(InputError, match="at least one run folder"):
        write_report([], tmp_path / "report")
    run = make_run(tmp_path / "run")
    with pytest.raises(InputError, match="named twice"):
        write_report([run, run], tmp_path / "report")
