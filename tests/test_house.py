"""One meaning per name, no tiny modules, and pages that name code which exists."""

import ast
import importlib
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from alewm.config import to_dict
from alewm.model.vit import ViTConfig
from alewm.model.world_model import WorldModelConfig
from alewm.training.config import ObjectiveConfig, OptimConfig, TrainingConfig
from alewm.training.presets import preset

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("lab/src/**/*.py")])

SHORT = {
    "src/alewm/__main__.py": "start of a command",
    "src/alewm/shapes.py": "imported by nearly every module, imports none",
    "src/alewm/cli/report.py": "one file per verb",
    "lab/src/alewm_lab/__main__.py": "start of a command",
    "lab/src/alewm_lab/cli/main.py": "start of a command",
}
"""Modules under 40 lines, and why each stands alone."""


def test_no_two_public_classes_share_a_name():
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_module_under_forty_lines_has_a_reason():
    short = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.name != "__init__.py" and len(path.read_text().splitlines()) < 40
    }
    assert short - SHORT.keys() == set(), "join it to the module it serves, or give the reason here"


ROOMS = "capacity|regularizers|model|planning|kernels|data|envs|training|evaluation|runs|report|interop|sweeps|cli"
PAGES = [
    path
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    if path.name not in ("CHANGELOG.md", "logbook.md", "results.md")
]


def is_object(name: str) -> bool:
    """Whether `room.module.object` is there to be imported."""
    words = name.removeprefix("alewm.").split(".")
    for end in range(len(words), 0, -1):
        module = ".".join(["alewm", *words[:end]])
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name and module.startswith(error.name):
                continue
            return True  # an optional package is missing
        for word in words[end:]:
            if not hasattr(found, word) and word not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, word, None)
        return True
    return False


def is_field(name: str) -> bool:
    """Whether `name` is the dotted path of a field of a run's configuration."""
    value: Any = to_dict(preset("two-room-192")) | {"data": {}}
    for word in name.split("."):
        if not isinstance(value, dict) or word not in value:
            kinds = (WorldModelConfig, ObjectiveConfig, TrainingConfig, OptimConfig, ViTConfig)
            return any(word in kind.__dataclass_fields__ for kind in kinds)
        value = value[word]
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_that_a_page_names_exists(page):
    text = page.read_text()
    names = set(re.findall(rf"`((?:alewm\.)?(?:{ROOMS})(?:\.\w+){(2,)})(?:\(\))?`", text))
    missing = [
        name for name in sorted(names) if not name.endswith(".py") and not is_object(name) and not is_field(name)
    ]
    files = set(re.findall(rf"`(?:src/alewm/)?((?:{ROOMS})/[\w/]+\.py)`", text))
    missing += [file for file in sorted(files) if not (ROOT / "src/alewm" / file).exists()]
    assert missing == []
