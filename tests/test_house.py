"""One meaning per class name, and no tiny modules."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("lab/src/**/*.py")])

SHORT = {
    "src/alewm/__main__.py": "start of a command",
    "src/alewm/shapes.py": "imported by nearly every module, imports none",
    "lab/src/alewm_lab/__main__.py": "start of a command",
}
"""Modules under 40 lines, and why each stands alone. Those of `cli` may be short: there is one per verb."""


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
        if path.name != "__init__.py" and path.parent.name != "cli" and len(path.read_text().splitlines()) < 40
    }
    assert short - SHORT.keys() == set(), "join it to the module it serves, or give the reason here"
