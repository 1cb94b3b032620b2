"""The README's commands and examples run, at smoke scale where they would take minutes."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from alewm_lab.publishing.main_results import write_marked

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


def test_the_results_are_those_of_the_records(tmp_path):
    """`alewm-lab results --marked README.md` would change nothing."""
    written = tmp_path / "README.md"
    written.write_text((ROOT / "README.md").read_text())
    write_marked(written, ROOT / "results")
    assert written.read_text() == (ROOT / "README.md").read_text()


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
