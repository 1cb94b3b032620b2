"""The README's commands and examples run, at smoke scale where they would take minutes."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import fmean, stdev

import pytest

from alewm.envs.registry import OUR_TASKS
from alewm_lab.publishing.comparison_table import rival_of
from alewm_lab.publishing.published import read_published
from alewm_lab.publishing.result_tables import paper_rate, read_paper

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md"]

# What a command gets in addition, so that it ends in seconds; everything else is run as it is printed.
SMOKE_FLAGS = {
    "oscillator": ["--epochs", "1", "--seeds", "0", "--jobs", "1"],
    "bench": ["--batch", "16", "--repeats", "2"],
    "collect": ["--episodes", "12", "--jobs", "1"],
    "train": ["--steps", "1", "--batch-size", "2", "--device", "cpu", "--set", "training.validation_batches=1"],
    "evaluate": ["--episodes", "1", "--candidates", "4", "--iterations", "1", "--elites", "2", "--device", "cpu"],
    "demo": ["--scale", "smoke"],
}
# Lines that install or fetch: this very environment is their result.
INSTALL = ("git clone", "cd alewm", "pip install")


def blocks(language: str) -> list[str]:
    text = "\n".join((ROOT / name).read_text() for name in DOCUMENTS)
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands() -> list[str]:
    lines = [line.split("  #")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    return list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_the_readme_has_commands_and_examples():
    assert len(commands()) >= 3
    assert blocks("python")


def test_every_command_is_of_a_kind_that_is_checked():
    for command in commands():
        assert command.startswith(("make ", "alewm ", "alewm-lab ", *INSTALL)), f"unchecked README command: {command}"


def test_make_targets_named_in_the_readme_exist():
    named = [command.split()[1] for command in commands() if command.startswith("make ")]
    assert named
    assert set(named) <= make_targets()


def test_every_make_target_of_the_contract_exists():
    assert {"demo", "test", "setup", "lint", "format", "bench", "clean"} <= make_targets()


@pytest.mark.slow
def test_the_commands_run_in_their_order(tmp_path):
    """In one folder and one test: later commands use what earlier ones made, or the models of the repository."""
    shutil.copytree(ROOT / "pretrained", tmp_path / "pretrained")
    for command in commands():
        if not command.startswith("alewm "):
            continue
        words = shlex.split(command)[1:]
        done = subprocess.run(
            [sys.executable, "-m", "alewm", *words, *SMOKE_FLAGS.get(words[0], [])],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"


@pytest.mark.parametrize("example", blocks("python"))
def test_an_example_runs(example):
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


RESULTS_ROWS = re.findall(
    r"^\| ([\w-]+) \((\de-\d)\)[^|]*\| ([^|]+) \| ([^|]+) \|",
    (ROOT / "README.md").read_text().split("## Results")[1].split("\n## ")[0],
    re.M,
)


@pytest.mark.parametrize(("task", "rate", "alewm", "lewm"), RESULTS_ROWS, ids=[row[0] for row in RESULTS_ROWS])
def test_results_are_those_of_the_records(task, rate, alewm, lewm):
    """Means, standard errors, single seeds in their order, intervals of one seed and the chosen capacity."""
    (scale,) = [
        scale
        for scale in read_published(ROOT / "results")
        if (scale.example.config["task"], scale.example.steps) == (task.lower(), 4500)
        and (scale.example.learning_rate, scale.example.config["model"]["encoder"]["hidden_dim"]) == (float(rate), 192)
        and not scale.example.copies_demonstrations
    ]
    (ours,) = [
        each
        for each in scale.configurations
        if each.config["objective"]["method"] == "alewm" and paper_rate(each, read_paper(ROOT / "results")) is not None
    ]
    for configuration, cell in ((ours, alewm), (rival_of(scale), lewm)):
        results = configuration.evaluated()
        if len(results) == 1:
            low, high = (100 * bound for bound in results[0]["interval"])
            expected = f"{100 * results[0]['success_rate']:.1f} ({low:.1f} to {high:.1f})"
        else:
            rates = [100 * result["success_rate"] for result in results]
            error = stdev(rates) / len(rates) ** 0.5
            expected = f"{fmean(rates):.1f} ± {error:.1f} ({', '.join(f'{each:.1f}' for each in rates)})"
        assert cell.startswith(expected)
        if configuration is ours:
            assert cell.endswith(f"[{fmean(result['mean_capacity'] for result in results):.0f}]")


def test_the_table_of_results_has_the_four_tasks():
    assert {row[0].lower() for row in RESULTS_ROWS} == set(OUR_TASKS)


def test_pictures_and_links_of_the_documents_exist():
    written = [
        path for path in (ROOT / "docs").rglob("*.md") if path != ROOT / "docs/results.md"
    ]  # which make docs makes
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results/README.md", *sorted(written)]:
        for target in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_badges_say_what_the_package_declares():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    badges = {path.stem: path.read_text() for path in (ROOT / "docs/images/badges").iterdir()}
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(declared["project"]["classifiers"]))
    assert f">{' | '.join(versions)}<" in badges["python"]
    assert f">{declared['project']['license']}<" in badges["licence"]
    assert declared["tool"]["mypy"]["strict"]
    assert (ROOT / "src/alewm/py.typed").exists()
    shown = re.findall(r"docs/images/badges/(\w+)\.svg", (ROOT / "README.md").read_text())
    assert set(shown) == set(badges)
