"""Dependencies between rooms go one way only; this test reads the imports and keeps it so."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "alewm"

# Each room may import from itself and from the rooms before it in its own line of sight.
FOUNDATION = {
    "errors",
    "files",
    "natural_order",
    "shapes",
    "ranges",
    "config",
    "distributed",
    "precision",
    "progress",
    "devices",
    "workers",
    "worker_pool",
    "native",
    "follower",
}
BELOW_EXPERIMENTS = FOUNDATION | {"capacity", "regularizers", "model", "planning", "data", "envs", "runs"}
MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "natural_order": set(),
    "shapes": set(),
    "ranges": {"errors"},
    "config": {"errors", "ranges"},
    "distributed": {"shapes"},
    "precision": {"shapes"},
    "progress": set(),
    "devices": {"errors"},
    "workers": {"errors"},
    "worker_pool": {"workers"},
    "follower": set(),
    "native": {"files"},
    "capacity": FOUNDATION,
    "runs": FOUNDATION,
    "regularizers": FOUNDATION | {"capacity"},
    "model": FOUNDATION | {"capacity"},
    "planning": FOUNDATION | {"capacity", "model"},
    "data": FOUNDATION,
    "envs": FOUNDATION,
    "training": FOUNDATION | {"capacity", "regularizers", "model", "planning", "data", "runs"},
    "evaluation": BELOW_EXPERIMENTS | {"training"},
    "ecosystem": BELOW_EXPERIMENTS | {"training", "evaluation"},
    "presentation": FOUNDATION,
    "experiments": BELOW_EXPERIMENTS | {"training", "evaluation", "presentation"},
    "reports": FOUNDATION | {"runs", "capacity", "data", "envs", "evaluation", "presentation", "experiments"},
    "benchmarks": BELOW_EXPERIMENTS | {"training", "evaluation", "presentation", "experiments"},
    "cli": BELOW_EXPERIMENTS | {"training", "evaluation", "experiments", "ecosystem", "reports", "benchmarks"},
}


def rooms():
    return sorted(
        {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
        - {"__init__", "__main__"}
    )


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module] if node.module != "alewm" else [f"alewm.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level > 0:
            pytest.fail(f"{path} uses a relative import; write it out, so that the arrows can be read")
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("alewm.")}
    return found


@pytest.mark.parametrize("room", rooms())
def test_a_room_imports_only_what_lies_below_it(room):
    assert room in MAY_IMPORT, f"give the new room {room!r} its place in MAY_IMPORT"
    files = [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").exists() else sorted((SOURCE / room).rglob("*.py"))
    for path in files:
        beyond = imported_rooms(path) - MAY_IMPORT[room] - {room, "__version__"}
        assert not beyond, f"{path.relative_to(SOURCE)} imports from {sorted(beyond)}"


def test_the_arrows_have_no_cycle():
    order: list[str] = []
    while len(order) < len(MAY_IMPORT):
        ready = [room for room in MAY_IMPORT if room not in order and MAY_IMPORT[room] <= set(order)]
        assert ready, f"cycle among {set(MAY_IMPORT) - set(order)}"
        order += ready
