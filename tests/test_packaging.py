"""What is built holds what it must, and nothing that happens to lie in the working folder."""

import ast
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import alewm

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "alewm"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def shipped_files():
    """Every file of the package, C sources, style sheets and the typing marker included."""
    return {
        f"alewm/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist, built without a network from a copy-free view of this folder."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"alewm-{alewm.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = archive.read(f"alewm-{alewm.__version__}.dist-info/entry_points.txt").decode()
        metadata = archive.read(f"alewm-{alewm.__version__}.dist-info/METADATA").decode()
    assert {name for name in names if ".dist-info/" not in name} == shipped_files()
    assert {"alewm/py.typed", "alewm/report/style.css"} <= names
    assert [name for name in names if name.endswith(".c")]
    assert "alewm = alewm.__main__:main" in entry_points
    assert "Requires-Python: >=3.11" in metadata


def test_the_sdist_holds_what_builds_and_tests_it_and_no_leftovers(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in shipped_files()} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "conftest.py", "docs/data.md"} <= names
    known = {
        "src",
        "tests",
        "lab",
        "docs",
        "notebooks",
        "benchmarks",
        "results",
        "pretrained",
        ".github",
        ".gitignore",
        "PKG-INFO",
    }
    known |= {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md"}
    known |= {"Makefile", "conftest.py", "constraints.txt", "mkdocs.yml", "pyproject.toml"}
    assert {name.partition("/")[0] for name in names} <= known


def test_the_installed_wheel_runs_where_the_sources_are_not(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-cache-dir"]
    subprocess.run([*install, "--target", str(tmp_path / "site"), str(wheel)], check=True)
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from alewm.cli.main import main; main()"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for words, expected in ((["--version"], f"alewm {alewm.__version__}"), (["--help"], "inspect")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "site"), *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert expected in done.stdout


@pytest.mark.parametrize("minor", [11, 12, 13])
def test_every_file_is_written_for_every_version_that_is_named(minor):
    assert f"Programming Language :: Python :: 3.{minor}" in PROJECT["classifiers"]
    for path in PACKAGE.rglob("*.py"):
        ast.parse(path.read_text(), filename=str(path), feature_version=(3, minor))


def test_pinned_versions_cover_what_the_tests_need():
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    extras = PROJECT["optional-dependencies"]
    for requirement in [*PROJECT["dependencies"], *extras["dev"], *extras["push-t"], *extras["mujoco"]]:
        name = requirement.split(">")[0].split("<")[0].split(";")[0].strip().lower().replace("_", "-")
        assert name in pinned, f"{name} is not pinned in constraints.txt"
