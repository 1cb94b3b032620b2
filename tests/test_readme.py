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


def test_results_are_those_of_the_page_of_results():
    page = (ROOT / "docs/results.md").read_text()
    section = (ROOT / "README.md").read_text().split("## Results")[1].split("##")[0]
    successes = re.findall(r"\d+\.\d \(\d+\.\d to \d+\.\d\)", section)
    assert successes
    assert [success for success in successes if success not in page] == []


def test_means_over_seeds_are_those_of_the_seeds_on_the_page_of_results():
    page = (ROOT / "docs/results.md").read_text()
    section = (ROOT / "README.md").read_text().split("## Results")[1].split("##")[0]
    means = re.findall(r"(\d+\.\d) ± (\d+\.\d) \(([\d., ]+)\)", section)
    assert means
    for mean, error, seeds in means:
        rates = [float(rate) for rate in seeds.split(",")]
        assert abs(fmean(rates) - float(mean)) <= 0.05
        assert abs(stdev(rates) / len(rates) ** 0.5 - float(error)) <= 0.05
        assert [rate for rate in seeds.split(", ") if not re.search(rf"seed \d+\]\([^)]*\) {rate} \(", page)] == []


def test_pictures_and_links_of_the_documents_exist():
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
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
