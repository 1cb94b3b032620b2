"""What is published can be checked: the page is that of the records, and the records give the rates in the results."""

import gzip
import json
import re

import pytest

from alewm.errors import InputError
from alewm.evaluation.statistics import Proportion
from alewm.runs.folder import portable
from alewm_lab.publishing.main_results import comparisons, methods_table, sentences, shown_comparisons, write_marked
from alewm_lab.publishing.publication import publication_name, read_publication
from alewm_lab.publishing.published import read_results
from alewm_lab.publishing.result_figures import TITLE_WIDTH
from alewm_lab.publishing.result_tables import read_paper
from alewm_lab.publishing.results_page import results_page, write_results_page
from copied_results import RESULTS, ROOT, add, change, edit, page_of, replace_table, rows_of, table_rows


def published_runs():
    return [run for scale in read_results(RESULTS).scales for run in scale.runs]


@pytest.fixture(scope="module")
def whole_page():
    """Of all records, with its figures, not drawn."""
    return results_page(RESULTS, ROOT / "docs" / "results.md")


def test_every_evaluated_run_stands_on_the_page(whole_page):
    text, _ = whole_page
    rates = [f"{100 * run.evaluations['']['success_rate']:.1f} (" for run in published_runs() if "" in run.evaluations]
    assert len(rates) > 50
    assert [rate for rate in rates if f") {rate}" not in text] == []


def test_figures_that_written_pages_show_are_committed_and_those_of_the_records(whole_page):
    """The others are drawn by `make docs` alone."""
    drawn = {f"{figure.name}.svg": f"<!-- data {figure.digest} -->" for figure in whole_page[1]}
    shown = {
        name
        for page in (ROOT / "docs").rglob("*.md")
        if page != ROOT / "docs/results.md"
        for name in re.findall(r"\(\S*images/results/(\S+)\)", page.read_text())
    }
    assert shown
    for name in shown:
        committed = (ROOT / "docs/images/results" / name).read_text().splitlines()[-1]
        assert committed == drawn[name], "out of date, repeat: alewm-lab results --out docs/results.md"


def test_figures_are_drawn_beside_the_page_and_old_ones_removed(published, tmp_path):
    (tmp_path / "docs/images/results").mkdir(parents=True)
    (tmp_path / "docs/images/results/old.svg").write_text("<svg/>\n<!-- data 1f -->\n")
    (tmp_path / "docs/images/results/own.svg").write_text("<svg/>\n")
    page = write_results_page(published("alewm"), tmp_path / "docs" / "results.md")
    shown = re.findall(r"!\[[^\]]+\]\((\S+)\)", page.read_text())
    (tmp_path / "docs/images/results/own.svg").unlink()  # another's, which was left alone
    drawn = sorted(str(path.relative_to(page.parent)) for path in page.parent.rglob("*.svg"))
    assert sorted(shown) == drawn
    assert all((page.parent / name).read_text().startswith("<?xml") for name in drawn)


def test_a_page_that_could_not_be_drawn_leaves_the_earlier_one_with_its_figures(published, tmp_path, monkeypatch):
    results, page = published("alewm"), tmp_path / "docs" / "results.md"
    write_results_page(results, page)
    old = page.parent / "images/results/old.svg"
    old.write_text("<svg/>\n<!-- data 1f -->\n")
    before = {path: path.read_bytes() for path in page.parent.rglob("*") if path.is_file()}
    monkeypatch.setattr("alewm_lab.publishing.results_page.as_svg", lambda draw: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_results_page(results, page)
    assert {path: path.read_bytes() for path in page.parent.rglob("*") if path.is_file()} == before


def share_of(name: str, rows: list[dict]) -> Proportion:
    return Proportion(sum(row[name] for row in rows), len(rows))


@pytest.mark.parametrize("run", published_runs(), ids=lambda run: f"{run.run.folder.parent.name}/{run.run.name}")
def test_the_episodes_give_the_rates_of_the_results(run):
    assert run.evaluations
    for settings, result in run.evaluations.items():
        episodes = run.episodes[settings]
        hard = [episode for episode in episodes if not episode["presolved"]]
        for suffix, rows in (("", episodes), ("_nontrivial", hard)):
            name = "demonstration" if "families" in result else "episode" if "different_episodes" in result else None
            several = [row[name] for row in rows] if name else ()
            success = Proportion.of([row["success"] for row in rows], several)
            assert result[f"episodes{suffix}"] == len(rows)
            assert result[f"success_rate{suffix}"] == success.rate
            # Another machine's sums may differ in the last bit.
            assert result[f"interval{suffix}"] == pytest.approx(success.interval, abs=1e-12)
            for floor in ("random", "zero", *(["replay"] if "replay_success_rate" in result else [])):
                assert result[f"{floor}_success_rate{suffix}"] == share_of(f"{floor}_success", rows).rate
        assert result["mean_capacity"] == sum(row["capacity"] for row in episodes) / len(episodes)
        for k, count in result["capacity_counts"].items():
            assert count == sum(row["capacity"] == int(k) for row in episodes)
        assert {(row["seed"], row["commit"]) for row in episodes} == {(run.seed, result["made_with"]["commit"])}
        assert len({row["pair"] for row in episodes}) == len(episodes)


def test_pairs_of_one_demonstration_can_be_told():
    """Push-T's test pairs are of ten copies each of 20 demonstrations; other tasks have no copies."""
    for run in published_runs():
        for episodes in run.episodes.values():
            clusters = {row["demonstration"] for row in episodes}
            if run.config["task"] == "push-t":
                assert len(clusters) < len(episodes) / 2
            else:
                assert len(clusters) == len({row["episode"] for row in episodes})


PUBLICATIONS = sorted(RESULTS.rglob("*.gz"))


def test_nothing_published_names_a_machine_s_folders():
    kept = [path for path in (ROOT / "benchmarks" / "results").rglob("*") if path.is_file()]
    for path in (*kept, RESULTS / "paper.json"):
        assert portable(json.loads(path.read_text())) == json.loads(path.read_text()), path
    for path in PUBLICATIONS:
        rows = read_publication(path)
        assert portable(rows) == rows, path


def test_publications_are_as_they_were_written():
    """A file's name has the digest of its content, so that a change shows."""
    assert len(PUBLICATIONS) > 5
    for path in PUBLICATIONS:
        assert path.name == publication_name(gzip.decompress(path.read_bytes()).decode(), path.name[:10])


def test_seeds_of_one_configuration_become_a_mean_and_its_standard_error(published):
    for seed, rate in ((3072, 0.98), (3073, 0.96), (3074, 1.0)):
        results = published(f"alewm-{seed}", config={"training.seed": seed}, success_rate=rate)
    text = page_of(results)
    assert "| ALeWM | 192 | 0.3 | 3 | 3 | 3072, 3073, 3074 | 98.00 ± 1.15 | 98.38 ± 0.00 | 8.00 ± 0.00 |" in text
    assert ", one seed |" not in text
    assert "| 100.00 ± 0.00 at 8 |" in text


def test_floors_of_several_seeds_are_a_range_from_the_lowest(published):
    for seed, rate in ((3072, 0.03), (3073, 0.01), (3074, 0.02)):
        results = published(f"alewm-{seed}", config={"training.seed": seed}, random_success_rate=rate)
    assert re.search(r"\| uniform random \|.*\| 1\.0 to 3\.0 \|", page_of(results))


def test_other_configurations_stand_in_rows_of_their_own_with_what_makes_them_different(published):
    published("paper")
    published("frozen", config={"objective.freezes_selector": True})
    published("flat", config={"model.prior_degree": -1.0})
    published("slow", config={"training.optim.weight_decay": 0.1})
    lewm = {"objective.method": "lewm", "model.has_selector": False, "model.latent_dim": 32, "model.capacities": [32]}
    results = published("lewm", config=lewm, mean_capacity=32.0)
    text = page_of(results)
    by_name = {row[0]: row for row in reversed(table_rows(text))}  # those of the first table
    assert by_name["ALeWM, weight_decay 0.001"][-1] == "100.00 ± 0.00 at 8"
    assert by_name["ALeWM, q frozen at the prior"][-1] == "–"
    assert by_name["ALeWM"][4] == "−1"
    assert by_name["LeWM"][1:5] == ["32", "0.3", "–", "–"]
    assert by_name["LeWM"][-1] == "95.00 ± 0.00 at 32"
    assert "98.5 (95.7 to 99.5), one seed" in by_name["LeWM"]


def test_commands_of_configurations_that_differ_in_a_column_are_told_apart(published):
    published("paper")
    published("delayed", config={"training.optim.selector_delay": 0.25})
    text = page_of(published("slow", config={"training.optim.selector_multiplier": 0.3}))
    assert "| ALeWM, q delayed by 25 % | 192 |" in text
    assert '\nALeWM, d = 192, s_q = 3; [seed 3073](../results/here/paper.jsonl.gz "paper")' in text
    assert '\nALeWM, d = 192, s_q = 0.3; [seed 3073](../results/here/slow.jsonl.gz "slow")' in text


def shown_in(results, kind):
    """What the page's figures of one kind show."""
    _, figures = results_page(results, results.parent / "page.md")
    return [figure.data for figure in figures if figure.name.endswith(f"-{kind}")]


def test_q_over_updates_is_shown_where_it_was_learned(published):
    results = published("frozen", config={"objective.freezes_selector": True})
    assert shown_in(results, "dynamics") == []
    published("learned")
    (dynamics,) = shown_in(results, "dynamics")
    assert [" ".join(title.split()) for title, _ in dynamics] == ["ALeWM, d = 192, seed = 3073"]


def test_titles_of_panels_fit_them(published):
    changes = {"objective.prior_weight": 0.003, "training.optim.selector_delay": 0.125}
    results = published("long", config=changes)
    (((title, _),),) = shown_in(results, "dynamics")
    lines = title.splitlines()
    assert max(map(len, lines)) <= TITLE_WIDTH
    assert lines[-1].split() == ["seed", "=", "3073"]


def impose(published, name, *ks, **changes):
    for k in ks:
        results = published(name, evaluation=f"capacity-{k}", **{"evaluated.planning.capacity": str(k)}, **changes)
    return results


def test_data_that_published_numbers_are_not_about_are_named_in_every_caption(published, tmp_path):
    results = published(
        "ours", config={"task": "push-t"}, replay_success_rate=0.995, replay_success_rate_nontrivial=0.9
    )
    impose(published, "ours", 8, 32, 64)
    published("ours", evaluation="validation", **{"evaluated.split": "validation"})
    text, figures = results_page(results, tmp_path / "results.md")
    note = "Data of our own expert, not the published demonstrations: not comparable with published figures."
    assert note not in text, "a file that `alewm collect` did not make may be the published one"
    change(results, "ours", "run", {"provenance.data.made_with": "alewm collect push-t --out push-t.h5"})
    text, figures = results_page(results, tmp_path / "results.md")
    assert len(figures) == 3
    assert text.count(note) == 5 + 2 * len(figures)  # five tables; a figure's caption is also its alternative text
    assert "| recorded actions | – | – | – | – | – | 99.5 | 90.0 | – | – | – |" in text
    assert "4,500 updates" in text
    assert "0.81 of an epoch" in text


def test_scales_are_never_mixed(published):
    published("short")
    published("other-data", config={"data.fingerprint": "0" * 32})
    published("steeper", config={"training.optim.learning_rate": 2e-4})
    results = published("longer", **{"training.step": 9000})
    scales = [(scale.example.steps, scale.example.learning_rate) for scale in read_results(results).scales]
    assert scales == [(9000, 5e-5), (4500, 2e-4), (4500, 5e-5), (4500, 5e-5)]
    assert len({scale.slug for scale in read_results(results).scales}) == 4
    assert page_of(results).count("## Two-Room") == 4
    # Headings that would be equal name their data: GitHub and MkDocs number equal ones differently.
    title = "Two-Room, ViT-Tiny, 4,500 updates at 5e-5"
    assert f"- [{title}, data `000000`](#two-room-vit-tiny-4500-updates-at-5e-5-data-000000)" in page_of(results)
    assert f"- [{title}](" not in page_of(results)


def test_the_contents_link_to_every_heading(whole_page):
    """Anchors as GitHub and MkDocs make them: lower case, spaces as hyphens, other signs left out, none twice."""
    text, _ = whole_page
    headings = re.findall(r"^## (.+)$", text, re.M)
    links = re.findall(r"^- \[(.+)\]\(#(.+)\)$", text, re.M)
    assert [title for title, _ in links] == headings
    assert len(headings) > 5
    assert len(set(headings)) == len(headings)
    for title, anchor in links:
        kept = [sign for sign in title.lower() if sign.isalnum() or sign in " -_"]
        assert anchor == "".join(kept).replace(" ", "-")


def test_imposed_capacities_and_other_settings_have_tables(published):
    for k, rate, interval in ((8, 0.99, [0.9, 1.0]), (32, 0.6, [0.5, 0.7]), (64, 0.5, [0.4, 0.6])):
        changes = {"evaluated.planning.capacity": str(k), "success_rate": rate, "interval": interval}
        published("alewm", evaluation=f"capacity-{k}", **changes)
    results = published("alewm", evaluation="validation", **{"evaluated.split": "validation", "success_rate": 0.7})
    text = page_of(results)
    assert "| k = 8 | k = 32 | k = 64 | as chosen |" in text
    assert "| 99.0 (90.0 to 100.0), one seed | 60.0 (" in text
    assert "| validation | 200 | ALeWM | 192 |" in text
    (sweep,) = shown_in(results, "capacities")
    imposed = [[8.0, 0.0, 99.0, 90.0, 100.0], [32.0, 0.0, 60.0, 50.0, 70.0], [64.0, 0.0, 50.0, 40.0, 60.0]]
    assert sweep == [["ALeWM, d = 192", [*imposed, [8.0, 0.0, 98.5, 95.7, 99.5]]]]


def test_imposed_and_chosen_capacities_are_compared_on_the_same_seeds(published):
    impose(published, "swept", 8, 32, 64)
    results = published("other", config={"training.seed": 9}, success_rate=0.1)
    chosen = "98.5 (95.7 to 99.5), one seed | 8.00 |"
    assert [line for line in page_of(results).splitlines() if line.endswith(chosen) and "| 3073 |" in line]
    (sweep,) = shown_in(results, "capacities")
    assert sweep[0][1][-1] == [8.0, 0.0, 98.5, 95.7, 99.5]


def test_a_curve_has_the_same_seeds_at_every_point(published):
    """A seed on which fewer capacities were imposed would make some points a mean of two and others of one."""
    impose(published, "swept", 8, 32, 64)
    results = impose(published, "ends", 8, 64, config={"training.seed": 9}, success_rate=0.1)
    (sweep,) = shown_in(results, "capacities")
    assert {point[2] for point in sweep[0][1]} == {98.5}
    assert " ± " in next(line for line in page_of(results).splitlines() if "| 98.5 (95.7 to 99.5), one seed | " in line)


def test_two_imposed_capacities_are_no_curve(published):
    results = impose(published, "ends", 8, 64)
    assert "| k = 8 | k = 64 | as chosen |" in page_of(results)
    assert shown_in(results, "capacities") == []


def test_a_page_without_the_paper_s_table_has_no_column_for_it(published):
    results = published("run")
    with_it = page_of(results)
    (results / "paper.json").unlink()
    text = page_of(results)
    assert "paper, 10 epochs" in with_it
    assert "paper" not in text
    assert "98.5 (95.7 to 99.5), one seed" in text


def test_data_are_recorded_to_where_training_looks_for_them():
    for run in published_runs():
        recorded, trained = (
            next((c for c in run.commands if f"alewm {verb} " in c), "") for verb in ("collect", "train")
        )
        if recorded and trained:
            assert re.search(r"--out (\S+)", recorded)[1] == re.search(r"--data (\S+)", trained)[1]


def test_one_training_published_twice_is_refused(published):
    published("one")
    results = published("two")
    with pytest.raises(InputError, match="One training is published twice"):
        read_results(results)


def test_a_seed_trained_again_has_a_table_and_its_first_training_counts_elsewhere(published):
    published("later", success_rate=0.5)
    results = published("first")
    change(results, "first", "run", {"provenance.started": "2026-01-01T00:00:00+00:00"})
    (configuration,) = read_results(results).scales[0].configurations
    assert [run.run.name for run in configuration.runs] == ["first"]
    assert [run.run.name for run in configuration.repeats] == ["later"]
    assert configuration.spread("success_rate").mean == 0.985
    text = page_of(results)
    assert "98.5 (95.7 to 99.5), one seed" in text
    assert "| 3073 | default | 200 | 98.5, 50.0 | 48.5 | 0 |" in text
    assert '"later") 50.0' in text  # its records are linked
    change(results, "later", "run", {"config.training.deterministic": True})
    assert "| 98.5, 50.0 (d) |" in page_of(results)  # in what order sums are added makes no other configuration
    published("later", evaluation="5-per-episode", success_rate=0.4)
    (configuration,) = read_results(results).scales[0].configurations
    assert configuration.spread("success_rate", "5-per-episode").mean == 0.4  # only the later one was evaluated so


def test_distilled_dynamics_are_compared_with_the_model_s_own_predictor(published):
    results = published("run")
    (evaluation,) = rows_of(results, "run", "evaluation")
    pairs = rows_of(results, "run", "episode")
    missed = sum(not row["success"] for row in pairs)
    small = {"settings": "dynamics-distilled"}
    add(results, "run", [evaluation | small, *(row | small | {"success": True} for row in pairs)])
    own, gained = (f"{100 * count / len(pairs):.1f}" for count in (len(pairs) - missed, missed))
    assert f"| default | {len(pairs)} | {own} | 100.0 | +{gained} (" in page_of(results)
    assert f" | {missed}, 0 |" in page_of(results)


@pytest.mark.parametrize(("part", "name"), [("training", "batch_size"), ("data", "frames"), ("objective", "method")])
def test_a_configuration_with_a_hole_is_refused(published, part, name):
    results = published("damaged")
    edit(results, "damaged", "run", lambda row: row["config"][part].pop(name))
    with pytest.raises(InputError, match=rf"damaged: its config says nothing of {part}.{name}. Publish the run again"):
        read_results(results)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no folder"):
        read_results(tmp_path / "nothing")


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


LEWM = {
    "objective.method": "lewm",
    "objective.regularizer_weight": 0.09,
    "model.has_selector": False,
    "model.capacities": [192],
}


def rows_of_comparison(page: str) -> list[list[str]]:
    (table,) = [part for part in page.split("\n\n") if "| minus LeWM (points) |" in part]
    return table_rows(table)[2:]


def rows_after_long_schedules(page: str) -> list[list[str]]:
    return table_rows(page.split("## Methods after long schedules")[1].split("\n## ")[0])[2:]


def set_episodes(results, run, **columns) -> None:
    """Other values in columns of its evaluated pairs: functions of the pair's number."""
    rows = rows_of(results, run, "episode")
    changed = [row | {name: value(n) for name, value in columns.items()} for n, row in enumerate(rows)]
    replace_table(results, run, "episode", changed)


def test_a_method_is_compared_with_lewm_pair_by_pair_and_by_demonstration(published):
    """Pairs 0 to 9 are reached by ALeWM alone: ten single episodes, or copies of one demonstration."""
    results = published("alewm")
    published("lewm", config=LEWM)
    set_episodes(results, "alewm", success=lambda n: n < 10)
    set_episodes(results, "lewm", success=lambda n: False)
    (row,) = rows_of_comparison(page_of(results))
    assert row[-3].startswith("+5.0 (+2")
    assert float(row[-2]) == pytest.approx(2 / 2**10, rel=0.05)
    assert row[-1] == "ahead, one seed"
    for run in ("alewm", "lewm"):
        set_episodes(results, run, demonstration=lambda n: n // 10)
    page = page_of(results)
    assert "over demonstrations" in page
    (row,) = rows_of_comparison(page)
    assert row[-3].startswith("+5.0 (+0.0 to")
    assert (row[-2], row[-1]) == ("1", "undecided")


def test_the_finer_evaluation_is_compared_where_both_have_it(published):
    results = published("alewm")
    published("lewm", config=LEWM)
    for run, rate in (("alewm", 0.5), ("lewm", 1.0)):
        published(run, evaluation="5-per-episode", success_rate=rate)
        fine = [
            row
            | {"settings": "5-per-episode", "pair": f"{row['episode']}:{start}-{start + 25}"}
            | {"success": rate == 1.0 or start % 2 == 0}
            for row in rows_of(results, run, "episode")
            for start in range(5)
        ]
        add(results, run, fine)
    (row,) = rows_of_comparison(page_of(results))
    assert row[-4] == "1000"
    assert row[-3].startswith("−40.0 (")
    assert row[-1] == "behind, one seed"


def test_after_long_schedules_each_method_has_the_rate_that_is_best_on_validation_pairs(published):
    """LeWM is best at the larger rate, ALeWM at the smaller one: they are compared although their rates differ."""
    rates = {"alewm": {5e-5: 0.9, 2e-4: 0.8}, "lewm": {5e-5: 0.7, 2e-4: 0.95}}
    for method, validated in rates.items():
        for rate, success in validated.items():
            name = f"{method}-{rate}"
            config = {"training.optim.learning_rate": rate, **(LEWM if method == "lewm" else {})}
            results = published(name, config=config, **{"training.step": 12_000})
            published(name, evaluation="validation", success_rate=success)
    for name, num_reached in (("alewm-5e-05", 200), ("alewm-0.0002", 0), ("lewm-5e-05", 0), ("lewm-0.0002", 150)):
        set_episodes(results, name, success=lambda n, most=num_reached: n < most)
    by_method = {row[2]: row for row in rows_after_long_schedules(page_of(results))}
    assert by_method["ALeWM"][4:7] == ["5e-5", "0.3", "2"]
    assert by_method["LeWM"][4:7] == ["2e-4", "0.09", "2"]
    assert by_method["ALeWM"][-3].startswith("+25.0 (")
    assert by_method["ALeWM"][-1] == "ahead, one seed"
    assert by_method["LeWM"][-3:] == ["–", "–", "–"]


@pytest.mark.parametrize(("finely_validated", "chosen"), [((5e-5, 2e-4), "2e-4"), ((2e-4,), "5e-5")])
def test_more_validation_pairs_decide_where_all_configurations_have_them(published, finely_validated, chosen):
    for rate, few, many in ((5e-5, 0.9, 0.7), (2e-4, 0.8, 0.95)):
        config = {"training.optim.learning_rate": rate}
        published(f"alewm-{rate}", config=config, **{"training.step": 12_000})
        published(f"alewm-{rate}", evaluation="validation", success_rate=few)
        if rate in finely_validated:
            published(f"alewm-{rate}", evaluation="validation_5-per-episode", success_rate=many)
    results = published("lewm", config=LEWM, **{"training.step": 12_000})
    (row,) = (row for row in rows_after_long_schedules(page_of(results)) if row[2] == "ALeWM")
    assert row[4] == chosen


def test_tiny_models_of_long_schedules_are_chosen_on_their_own_validation_pairs(whole_page):
    rows = rows_after_long_schedules(whole_page[0])
    ours, lewm = (next(row for row in rows if row[2:4] == [name, "13,200"]) for name in ("ALeWM", "LeWM"))
    assert (ours[4:8], lewm[4:8]) == (
        ["2e-3", "0.3", "2", "3072, 3073, 3074"],
        ["5e-4", "0.2", "4", "3072, 3073, 3074"],
    )
    assert ours[-3:] == ["+9.8 (+7.4 to +12.3)", "0.0001", "ahead"]


def test_configurations_that_nothing_chooses_between_are_refused(published):
    for rate in (5e-5, 2e-4):
        config = {"training.optim.learning_rate": rate}
        published(f"alewm-{rate}", config=config, **{"training.step": 12_000})
    results = published("lewm", config=LEWM, **{"training.step": 12_000})
    with pytest.raises(InputError, match=r"none can be chosen: alewm-0\.0002, alewm-5e-05\. Evaluate them with"):
        page_of(results)


def test_the_main_results_prefer_long_schedules_and_keep_the_shorter_one_with_more_seeds(published):
    """Two-Room after 4,500 updates with two seeds and after 12,000 with one; LeWM's rate there is its better one."""
    for method, config in (("alewm", {}), ("lewm", LEWM)):
        for seed in (3072, 3073):
            published(f"{method}-{seed}", config={"training.seed": seed, **config})
        published(f"{method}-long", config=config, **{"training.step": 12_000})
        published(f"{method}-long", evaluation="validation", success_rate=0.5)
    steeper = {"training.optim.learning_rate": 2e-4, **LEWM}
    published("lewm-steep", config=steeper, **{"training.step": 12_000})
    results = published("lewm-steep", evaluation="validation", success_rate=0.9)
    set_episodes(results, "alewm-long", success=lambda n: True)
    set_episodes(results, "lewm-steep", success=lambda n: n % 2 == 0)
    found = comparisons(read_results(results).scales, read_paper(results))
    assert [[cell.text for cell in row[:3]] for row in methods_table(found).rows] == [
        ["Two-Room", "12,000 at 5e-5, LeWM 2e-4", "1"],
        ["Two-Room", "4,500 at 5e-5", "2"],
    ]
    assert re.fullmatch(
        r"- \*\*Two-Room\*\*: ALeWM is ahead, \+50\.0 points \(\+4\d\.\d to \+5\d\.\d\); 12,000 updates, 1 seed, "
        r"configurations tried: 1 and 2, 200 pairs\.\n",
        sentences(found),
    )


@pytest.mark.parametrize(
    ("config", "planned"),
    [
        ({"model.encoder.hidden_dim": 384, "model.latent_dim": 384}, {}),
        ({"model.latent_dim": 96}, {}),
        ({}, {"planning.cem.num_iterations": 10}),
    ],
)
def test_the_main_results_hold_what_their_caption_says_alone(published, config, planned):
    """The longest schedule of the same task and data, with another encoder, width or search."""
    for method, own in (("alewm", {}), ("lewm", LEWM)):
        published(method, config=own)
        results = published(f"{method}-other", config=own | config, **{"training.step": 12_000}, **planned)
    found = comparisons(read_results(results).scales, read_paper(results))
    assert [each.schedule for each in found] == ["4,500 at 5e-5"]


def test_the_shown_comparison_has_the_settings_that_validation_chose_also_where_they_are_not_the_papers(published):
    """ALeWM's better λ of two is not the paper's, which LeWM's need not be either."""
    for name, weight, rate in (("papers", 0.3, 0.5), ("ours", 0.2, 0.9)):
        config = {"objective.regularizer_weight": weight}
        published(name, config=config, **{"training.step": 12_000})
        published(name, evaluation="validation", success_rate=rate)
    results = published("lewm", config=LEWM, **{"training.step": 12_000})
    (comparison,) = comparisons(read_results(results).scales, read_paper(results))
    assert comparison.ours.config["objective"]["regularizer_weight"] == 0.2
    assert comparison.num_configurations == (2, 1)
    assert comparison.row()[-1] == "100.0 [8], 88.2"


def test_of_shorter_schedules_the_one_with_most_seeds_of_both_is_shown(published):
    """Three trainings of ALeWM and one of LeWM compare seeds no better than one and one."""
    for rate, seeds in ((5e-5, {"alewm": 3, "lewm": 1}), (2e-4, {"alewm": 2, "lewm": 2})):
        for method, config in (("alewm", {}), ("lewm", LEWM)):
            for seed in range(seeds[method]):
                changed = {"training.seed": seed, "training.optim.learning_rate": rate, **config}
                results = published(f"{method}-{rate}-{seed}", config=changed)
    for method, config in (("alewm", {}), ("lewm", LEWM)):
        results = published(f"{method}-long", config=config, **{"training.step": 12_000})
    found = comparisons(read_results(results).scales, read_paper(results))
    assert [each.schedule for each in shown_comparisons(found)] == ["12,000 at 5e-5", "4,500 at 2e-4"]


def test_main_results_are_written_between_their_marks_alone(published, tmp_path):
    results, page = published("alewm"), tmp_path / "README.md"
    page.write_text("# Mine\n\n<!-- results: here -->\nold\n<!-- /results -->\nAfter.\n")
    with pytest.raises(InputError, match="no table to write"):
        write_marked(page, results)
    published("lewm", config=LEWM)
    page.write_text("# Mine\n\nNo place.\n")
    with pytest.raises(InputError, match="must have one place between lines <!-- results"):
        write_marked(page, results)
    page.write_text("# Mine\n\n<!-- results: here -->\nold\n<!-- /results -->\nAfter.\n")
    write_marked(page, results)
    written = page.read_text()
    assert "Updates times rate are at most 0.2 here" in written  # 4,500 times 5e-5
    assert written.startswith("# Mine\n\n<!-- results: here -->\n| task |")
    assert written.endswith("200 pairs.\n<!-- /results -->\nAfter.\n")
    assert "old" not in written
    write_marked(page, results)
    assert page.read_text() == written
    (results / "paper.json").unlink()
    with pytest.raises(InputError, match=r"has no paper\.json"):
        write_marked(page, results)


def test_the_findings_name_the_differences_of_the_records():
    text = (ROOT / "docs" / "findings.md").read_text()
    found = comparisons(read_results(RESULTS).scales, read_paper(RESULTS))
    assert len(found) >= 9
    for comparison in found:
        is_there = comparison.compared.difference[:-1] in text
        # The others are in the page of results.
        assert is_there or comparison not in shown_comparisons(found), comparison.title
        assert f"| {comparison.papers[0][0] - comparison.papers[1][0]:+.1f} |" in text, comparison.title


def test_the_figure_of_differences_has_every_comparison(whole_page):
    (figure,) = [figure for figure in whole_page[1] if figure.name == "differences"]
    assert len(figure.data) == len(comparisons(read_results(RESULTS).scales, read_paper(RESULTS)))
