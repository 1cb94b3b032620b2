"""What is published can be checked: the page is that of the records, and the records give the rates in the results."""

import json
import re
import shutil
from pathlib import Path

import pytest

from alewm.errors import InputError
from alewm.evaluation.statistics import Proportion
from alewm.reports.columns import csv_text, read_csv
from alewm.reports.published import read_published
from alewm.reports.result_figures import TITLE_WIDTH
from alewm.reports.results_page import results_page, write_results_page
from alewm.runs.portable import portable

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
EXAMPLE = RESULTS / "two-room-short" / "alewm-192-3073"
OF_EXAMPLE = {
    "success_rate": 0.985,
    "interval": [0.957, 0.995],
    "success_rate_nontrivial": 0.9838,
    "interval_nontrivial": [0.953, 0.994],
}
"""What copies of it say instead, so that tests do not depend on how well some model plans."""


def evaluations():
    return sorted(path.parent for path in RESULTS.glob("*/**/episodes.csv"))


def test_the_committed_page_and_its_figures_are_those_of_the_records():
    text, figures = results_page(RESULTS, ROOT / "docs" / "results.md")
    outdated = "out of date, repeat: alewm report results --out docs/results.md"
    assert text == (ROOT / "docs/results.md").read_text(), outdated
    names = {
        f"{figure.name}{kind}.svg": f"<!-- data {figure.digest} -->" for figure in figures for kind in ("", "-dark")
    }
    committed = {path.name: path.read_text().splitlines()[-1] for path in (ROOT / "docs/images/results").iterdir()}
    assert committed == names, outdated


def test_figures_are_drawn_beside_the_page_and_old_ones_removed(published, tmp_path):
    (tmp_path / "docs/images/results").mkdir(parents=True)
    (tmp_path / "docs/images/results/old.svg").touch()
    page = write_results_page(published("alewm"), tmp_path / "docs" / "results.md")
    shown = re.findall(r'(?:srcset|src)="([^"]+)"', page.read_text())
    drawn = sorted(str(path.relative_to(page.parent)) for path in page.parent.rglob("*.svg"))
    assert sorted(shown) == drawn
    assert all((page.parent / name).read_text().startswith("<?xml") for name in drawn)


def share_of(name: str, rows: list[dict]) -> Proportion:
    return Proportion(sum(row[name] for row in rows), len(rows))


@pytest.mark.parametrize("folder", evaluations(), ids=lambda folder: str(folder.relative_to(RESULTS)))
def test_the_episodes_give_the_rates_of_the_result(folder):
    result, episodes = json.loads((folder / "result.json").read_text()), read_csv(folder / "episodes.csv")
    hard = [episode for episode in episodes if not episode["presolved"]]
    for suffix, rows in (("", episodes), ("_nontrivial", hard)):
        success = share_of("success", rows)
        assert result[f"episodes{suffix}"] == len(rows)
        assert result[f"success_rate{suffix}"] == success.rate
        assert result[f"interval{suffix}"] == success.interval
        for floor in ("random", "zero", *(["replay"] if "replay_success_rate" in result else [])):
            assert result[f"{floor}_success_rate{suffix}"] == share_of(f"{floor}_success", rows).rate
    assert result["mean_capacity"] == sum(row["capacity"] for row in episodes) / len(episodes)
    for k, count in result["capacity_counts"].items():
        assert count == sum(row["capacity"] == int(k) for row in episodes)


def test_nothing_published_is_large_or_names_a_machine_s_folders():
    files = [path for kept in (RESULTS, ROOT / "benchmarks" / "results") for path in kept.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".json", ".csv", ".md"}
    for path in files:
        assert path.stat().st_size < 200_000, path
        if path.suffix == ".json":
            assert portable(json.loads(path.read_text())) == json.loads(path.read_text()), path


@pytest.fixture
def published(tmp_path):
    """A function that publishes a copy of the example with other values in some files."""
    (tmp_path / "results").mkdir()
    shutil.copyfile(RESULTS / "paper.json", tmp_path / "results" / "paper.json")

    def publish(name, *, config=(), evaluation="", **result):
        place = tmp_path / "results" / "here" / name
        if not place.exists():
            shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("evaluations"))
            _change(place / "result.json", OF_EXAMPLE)
            provenance = json.loads((place / "provenance.json").read_text())
            del provenance["data"]["made_with"]  # as if the file had come from elsewhere
            (place / "provenance.json").write_text(json.dumps(provenance))
        _change(place / "config.json", dict(config))
        if evaluation:
            (place / "evaluations" / evaluation).mkdir(parents=True)
            shutil.copyfile(place / "result.json", place / "evaluations" / evaluation / "result.json")
            place = place / "evaluations" / evaluation
        _change(place / "result.json", result)
        return tmp_path / "results"

    return publish


def _change(path: Path, changes: dict) -> None:
    content = json.loads(path.read_text())
    for name, value in changes.items():
        *outer, last = name.split(".")
        place = content
        for part in outer:
            place = place[part]
        place[last] = value
    path.write_text(json.dumps(content))


def page_of(results: Path) -> str:
    return results_page(results, results.parent / "docs" / "results.md")[0]


def test_seeds_of_one_configuration_become_a_mean_and_its_standard_error(published):
    for seed, rate in ((3072, 0.98), (3073, 0.96), (3074, 1.0)):
        results = published(f"alewm-{seed}", config={"training.seed": seed}, success_rate=rate)
    text = page_of(results)
    assert "| ALeWM | 192 | 0.3 | 3 | 3 | 3072, 3073, 3074 | 98.00 ± 1.15 | 98.38 ± 0.00 | 8.00 ± 0.00 |" in text
    assert ", one seed |" not in text
    assert "| 100.00 ± 0.00 at 8 |" in text


def test_other_configurations_stand_in_rows_of_their_own_with_what_makes_them_different(published):
    published("paper")
    published("frozen", config={"objective.freezes_selector": True})
    published("flat", config={"model.prior_degree": -1.0})
    published("slow", config={"training.optim.weight_decay": 0.1})
    lewm = {"objective.method": "lewm", "model.has_selector": False, "model.latent_dim": 32, "model.capacities": [32]}
    results = published("lewm", config=lewm, mean_capacity=32.0)
    text = page_of(results)
    rows = [re.split(r"\s*\|\s*", line)[1:] for line in text.splitlines() if line.startswith("| ")]
    by_name = {row[0]: row for row in reversed(rows)}  # those of the first table
    assert by_name["ALeWM, weight_decay 0.001"][-2] == "100.00 ± 0.00 at 8"
    assert by_name["ALeWM, q frozen at the prior"][-2] == "–"
    assert by_name["ALeWM"][4] == "−1"
    assert by_name["LeWM"][1:5] == ["32", "0.3", "–", "–"]
    assert by_name["LeWM"][-2] == "95.00 ± 0.00 at 32"
    assert "98.5 (95.7 to 99.5), one seed" in by_name["LeWM"]


def test_commands_of_configurations_that_differ_in_a_column_are_told_apart(published):
    published("paper")
    published("delayed", config={"training.optim.selector_delay": 0.25})
    text = page_of(published("slow", config={"training.optim.selector_multiplier": 0.3}))
    assert "| ALeWM, q delayed by 25 % | 192 |" in text
    assert "\nALeWM, d = 192, s_q = 3; [seed 3073](../results/here/paper)" in text
    assert "\nALeWM, d = 192, s_q = 0.3; [seed 3073](../results/here/slow)" in text


def test_q_over_updates_is_shown_where_it_was_learned(published, tmp_path):
    results = published("frozen", config={"objective.freezes_selector": True})
    assert not [each for each in results_page(results, tmp_path / "page.md")[1] if each.name.endswith("-dynamics")]
    published("learned")
    (dynamics,) = [each for each in results_page(results, tmp_path / "page.md")[1] if each.name.endswith("-dynamics")]
    assert [" ".join(title.split()) for title, _ in dynamics.data] == ["ALeWM, d = 192, seed = 3073"]


def test_titles_of_panels_fit_them(published, tmp_path):
    changes = {"objective.prior_weight": 0.003, "training.optim.selector_delay": 0.125}
    results = published("long", config=changes)
    (dynamics,) = [each for each in results_page(results, tmp_path / "page.md")[1] if each.name.endswith("-dynamics")]
    ((title, _),) = dynamics.data
    lines = title.splitlines()
    assert max(map(len, lines)) <= TITLE_WIDTH
    assert lines[-1].split() == ["seed", "=", "3073"]


def test_data_that_published_numbers_are_not_about_are_named_in_every_caption(published, tmp_path):
    results = published(
        "ours", config={"task": "push-t"}, replay_success_rate=0.995, replay_success_rate_nontrivial=0.9
    )
    for k in (8, 64):
        published("ours", evaluation=f"capacity-{k}", **{"evaluated.planning.capacity": str(k)})
    published("ours", evaluation="validation", **{"evaluated.split": "validation"})
    text, figures = results_page(results, tmp_path / "results.md")
    note = "Data of our own expert, not the published demonstrations: not comparable with published figures."
    assert note not in text, "a file that `alewm collect` did not make may be the published one"
    _change(results / "here/ours/provenance.json", {"data.made_with": "alewm collect push-t --out push-t.h5"})
    text, figures = results_page(results, tmp_path / "results.md")
    assert len(figures) == 3
    assert text.count(note) == 4 + 2 * len(figures)  # four tables; a figure's caption is also its alternative text
    assert "| recorded actions | – | – | – | – | – | 99.5 | 90.0 | – | – | – |" in text
    assert "4,500 updates" in text
    assert "0.81 of an epoch" in text


def test_scales_are_never_mixed(published):
    published("short")
    published("other-data", config={"data.fingerprint": "0" * 32})
    published("steeper", config={"training.optim.learning_rate": 2e-4})
    results = published("longer", **{"training.step": 9000})
    scales = [(scale.example.steps, scale.example.learning_rate) for scale in read_published(results)]
    assert scales == [(9000, 5e-5), (4500, 2e-4), (4500, 5e-5), (4500, 5e-5)]
    assert len({scale.slug for scale in read_published(results)}) == 4
    assert page_of(results).count("## TwoRoom") == 4


def test_imposed_capacities_and_other_settings_have_tables(published):
    for k, rate, interval in ((8, 0.99, [0.9, 1.0]), (64, 0.5, [0.4, 0.6])):
        changes = {"evaluated.planning.capacity": str(k), "success_rate": rate, "interval": interval}
        published("alewm", evaluation=f"capacity-{k}", **changes)
    results = published("alewm", evaluation="validation", **{"evaluated.split": "validation", "success_rate": 0.7})
    text, figures = results_page(results, results.parent / "page.md")
    assert "| k = 8 | k = 64 | as chosen |" in text
    assert "| 99.0 (90.0 to 100.0), one seed | 50.0 (" in text
    assert "| validation | 200 | ALeWM | 192 |" in text
    (sweep,) = [figure for figure in figures if figure.name.endswith("-capacities")]
    imposed = [[8.0, 0.0, 99.0, 90.0, 100.0], [64.0, 0.0, 50.0, 40.0, 60.0]]
    assert sweep.data == [["ALeWM, d = 192", [*imposed, [8.0, 0.0, 98.5, 95.7, 99.5]]]]


def test_imposed_and_chosen_capacities_are_compared_on_the_same_seeds(published):
    published("swept", evaluation="capacity-8", **{"evaluated.planning.capacity": "8"})
    published("swept", evaluation="capacity-64", **{"evaluated.planning.capacity": "64"})
    results = published("other", config={"training.seed": 9}, success_rate=0.1)
    text, figures = results_page(results, results.parent / "page.md")
    chosen = "98.5 (95.7 to 99.5), one seed | 8.00 |"
    assert [line for line in text.splitlines() if line.endswith(chosen) and "| 3073 |" in line]
    (sweep,) = [figure for figure in figures if figure.name.endswith("-capacities")]
    assert sweep.data[0][1][-1] == [8.0, 0.0, 98.5, 95.7, 99.5]


def measure(results: Path, run: str, content: dict) -> None:
    place = results / "here" / run / "measurements"
    place.mkdir(parents=True)
    (place / "probes.json").write_text(json.dumps(content))


def factors(x: float, y: float) -> dict:
    return {"mean": (x + y) / 2, "factors": {"proprio[0]": x, "proprio[1]": y}}


def test_what_prefixes_say_of_the_state_is_the_mean_over_the_seeds_that_were_probed(published):
    command = "alewm experiment probes --scale short"
    for seed, r2 in ((3072, 0.5), (3073, 0.7)):
        results = published(f"run-{seed}", config={"training.seed": seed})
        probed = {"linear": {"8": factors(r2, r2), "192": factors(0.8, 1.0)}, "network": {"8": factors(0.5, r2 - 0.6)}}
        measure(results, f"run-{seed}", {"measured": probed, "made_with": {"command": command}})
    published("not-probed", config={"training.seed": 3074})
    text = page_of(results)
    linear = "| linear | 0.600 ± 0.100 | 0.900 ± 0.000 | proprio[0]: 0.800 |"
    assert f"| ALeWM | 192 | 0.3 | 3 | 3 | 3072, 3073 {linear}" in text
    assert "| network | 0.250 ± 0.050 | – | proprio[1]: 0.000 |" in text
    assert text.count(f"{command}\n") == 1


def test_a_page_without_the_paper_s_table_has_no_column_for_it(published):
    results = published("run")
    with_it = page_of(results)
    (results / "paper.json").unlink()
    text = page_of(results)
    assert "paper, 10 epochs" in with_it
    assert "paper" not in text
    assert "98.5 (95.7 to 99.5), one seed" in text


def test_data_are_recorded_to_where_training_looks_for_them():
    for run in (run for scale in read_published(RESULTS) for run in scale.runs):
        recorded, trained = (
            next((c for c in run.commands if f"alewm {verb} " in c), "") for verb in ("collect", "train")
        )
        if recorded and trained:
            assert re.search(r"--out (\S+)", recorded)[1] == re.search(r"--data (\S+)", trained)[1]


def test_probes_of_more_and_of_less_are_compared_on_what_both_read(published):
    for seed, more in ((3072, {}), (3073, {"proprio[1]": 0.1, "qvel[0]": 0.9})):
        results = published(f"run-{seed}", config={"training.seed": seed})
        read = {"8": {"factors": {"proprio[0]": 0.7, **more}}}
        measure(results, f"run-{seed}", {"measured": {"linear": read, "network": read}, "made_with": {"command": "x"}})
    text = page_of(results)
    assert "| linear | 0.700 ± 0.000 | proprio[0]: 0.700 |" in text
    assert "qvel" not in text
    for seed, name in ((3072, "proprio[0]"), (3073, "proprio[1]")):
        read = {"8": {"factors": {name: 0.7}}}
        path = results / f"here/run-{seed}/measurements/probes.json"
        path.write_text(json.dumps({"measured": {"linear": read, "network": read}}))
    assert "| 3072, 3073 | linear | – | – |" in page_of(results), "nothing in common"


def test_what_training_ended_with_is_in_a_table(published):
    ended = {"training.validation/prediction": 0.01, "training.validation/q_entropy": 1.5}
    for seed, share in ((3072, 0.5), (3073, 0.7)):
        most = {
            "training.validation/q/8": 0.3,
            "training.validation/q/64": share,
            "training.latent/effective_rank": seed,
        }
        results = published(f"run-{seed}", config={"training.seed": seed}, **ended, **most)
        rows = [{"coordinate": 1, "masked_variance": 1.0, "prior_survival": 0.75}]
        rows += [{"coordinate": 2, "masked_variance": 0.5, "prior_survival": 0.5}]
        (results / f"here/run-{seed}/latent.csv").write_text(csv_text(rows))
    ended = "– | 0.013 ± 0.000 | 1.50 ± 0.00 | 64: 0.50 to 0.70 | 3072.5 ± 0.5 | 0.125 ± 0.000 |"
    assert f"| ALeWM | 192 | 0.3 | 3 | 3 | 3072, 3073 | {ended}" in page_of(results)
    published("run-3073", **{"training.validation/q/8": 0.9})
    assert "| 64: 0.50; 8: 0.90 |" in page_of(results)
    for seed in (3072, 3073):
        (results / f"here/run-{seed}/latent.csv").unlink()
    assert "What training ended with" not in page_of(results)


@pytest.mark.parametrize(
    ("config", "q", "variances", "errors"),
    [
        ({}, (0.5, 0.5), (2.0, 3.0), "0.040 | 0.133"),
        ({}, (0.5, 0.5), (), "– | 0.133"),
        ({"objective.method": "lewm"}, (1.0,), (), "0.133 | 0.133"),
        ({"objective.prediction_target": "prefix"}, (0.5, 0.5), (2.0, 3.0), "– | –"),
    ],
    ids=["masks", "masks, older record", "never masks", "predicts a prefix"],
)
def test_an_error_is_shared_by_the_variance_of_what_is_predicted(published, config, q, variances, errors):
    """The whole latent is predicted whatever masks the input, and varies more than what the mask leaves of it."""
    results = published("run", config=config)
    ended = {"validation/prediction": 0.1, "validation/q_entropy": 1.5, "latent/effective_rank": 2.0}
    ended |= {"step": 4500, "seconds": 100.0, **{f"validation/q/{k}": share for k, share in enumerate(q, 1)}}
    _change(results / "here/run/result.json", {"training": ended})
    rows = [{"masked_variance": 1.0, "prior_survival": 1.0}, {"masked_variance": 0.5, "prior_survival": 0.5}]
    for row, variance in zip(rows, variances, strict=False):
        row["variance"] = variance
    (results / "here/run/latent.csv").write_text(csv_text(rows))
    assert f"| 3073 | {errors} |" in page_of(results)


def test_a_measurement_without_its_result_is_refused(published):
    results = published("damaged")
    measure(results, "damaged", {"options": {}})
    with pytest.raises(InputError, match=r"measurements/probes.json holds nothing measured"):
        read_published(results)


WHOLE = {"linear": {"8": factors(0.1, 0.2)}, "network": {"8": factors(0.1, 0.2)}}


@pytest.mark.parametrize(
    "damage",
    [
        {"network": None},
        {"network": {}},
        {"network": {"8": {"mean": 0.1}}},
        {"network": {"8": {"factors": {}}}},
        {"network": {"8": {"factors": {"proprio[0]": "a lot"}}}},
        {"network": {"8": {"factors": {"qvel[0]": 0.5}}}},
        {"network": {"eight": factors(0.1, 0.2)}},
        {"network": [1]},
    ],
)
def test_damaged_probes_are_refused(published, damage):
    results = published("damaged")
    measure(results, "damaged", {"measured": {**WHOLE, **damage}})
    with pytest.raises(InputError, match=r"damaged/measurements/probes.json lacks R² of the network probe"):
        page_of(results)


def test_damaged_latents_are_refused(published):
    results = published("damaged")
    path = results / "here/damaged/latent.csv"
    path.write_text(path.read_text().rpartition(",")[0])
    with pytest.raises(InputError, match=r"latent.csv has a row without its two numbers"):
        read_published(results)


def test_one_seed_published_twice_is_refused(published):
    published("one")
    results = published("two")
    with pytest.raises(InputError, match="published twice"):
        read_published(results)


@pytest.mark.parametrize(("part", "name"), [("training", "batch_size"), ("data", "frames"), ("objective", "method")])
def test_a_configuration_with_a_hole_is_refused(published, part, name):
    results = published("damaged")
    path = results / "here/damaged/config.json"
    config = json.loads(path.read_text())
    del config[part][name]
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match=rf"config.json says nothing of {part}.{name}. Publish the run again"):
        read_published(results)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no folder"):
        read_published(tmp_path / "nothing")


def test_rows_survive_a_file(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(csv_text([{"step": 1, "kind": "train", "q/8": 0.123456}, {"step": 2, "success": True}]))
    assert read_csv(path) == [{"step": 1, "kind": "train", "q/8": 0.12346}, {"step": 2, "success": 1}]


def test_paths_and_the_host_are_left_out(monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "gpu-07.example")
    said = {
        "command": "alewm train two-room-192 --data /elsewhere/two-room.h5 --out=/elsewhere/runs/x --steps 5",
        "path": "/home/someone/data/two-room.h5",
        "list": ["~/runs/a", "runs/a", "3962 windows/s", "gpu-07.example"],
        "number": 1.5,
    }
    assert portable(said) == {
        "command": "alewm train two-room-192 --data two-room.h5 --out=x --steps 5",
        "path": "two-room.h5",
        "list": ["a", "runs/a", "3962 windows/s", "host"],
        "number": 1.5,
    }
