"""Functions, classes and files that the documentation names exist."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {path.name.removesuffix(".py") for path in (ROOT / "src" / "alewm").iterdir()}
HOMES = ("", "src", "src/alewm", "lab/src/alewm_lab", "tests")
# Entries of config.json and files of a run, which look like names of code.
FIELDS = ("model.prior_degree", "model.planner", "training.optim", "model.safetensors", "training.safetensors")
PAGES = [
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "logbook.md"),  # which tells of the past
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]


def dotted_names(text: str) -> set[str]:
    """Names such as `planning.search.solve` or `alewm.load`."""
    found = {name.removeprefix("alewm.") for name in re.findall(r"`((?:[a-z_]+\.)+\w+)(?:\([^`]*\))?`", text)}
    return {
        name
        for name in found
        if name.split(".")[0] in ROOMS and not name.endswith(".py") and not name.startswith(FIELDS)
    }


def exists(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(["alewm", *parts[:length]]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute, None)
        return found is not None
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page):
    text = page.read_text()
    files = re.findall(r"`((?:[a-z_]+/)+\w+\.py)`", text)
    assert [name for name in dotted_names(text) if not exists(name)] == []
    assert [name for name in files if not any((ROOT / home / name).exists() for home in HOMES)] == []


def test_a_name_that_is_gone_is_found_missing():
    assert exists("planning.search.solve")
    assert dotted_names("`kernels.dispatch.prefix_mixture_cf`") == {"kernels.dispatch.prefix_mixture_cf"}
    assert not exists("kernels.dispatch.prefix_mixture_cf")
    assert not exists("planning.search.solved")
