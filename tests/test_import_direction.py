"""Dependencies between rooms go one way; this test reads the imports and keeps it so."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "alewm"
LAB = ROOT / "lab" / "src" / "alewm_lab"

FOUNDATION = {"errors", "files", "shapes", "resize", "config", "distributed", "progress", "devices", "interrupts"}
FOUNDATION |= {"workers"}
METHOD = FOUNDATION | {"capacity", "regularizers", "kernels", "model", "planning"}
# Each room may import from itself and from the rooms named here.
MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "shapes": set(),
    "resize": {"errors", "shapes"},
    "config": {"errors"},
    "distributed": {"shapes", "errors"},
    "progress": set(),
    "devices": {"errors", "shapes"},
    "interrupts": set(),
    "workers": {"errors", "interrupts"},
    "theme": FOUNDATION,
    "runs": FOUNDATION,
    "tables": FOUNDATION | {"runs"},
    "capacity": FOUNDATION,
    "kernels": FOUNDATION | {"capacity"},
    "regularizers": FOUNDATION | {"capacity", "kernels"},
    "model": FOUNDATION | {"capacity", "kernels"},
    "planning": FOUNDATION | {"capacity", "kernels", "model", "runs"},
    "data": FOUNDATION | {"kernels"},
    "envs": FOUNDATION | {"data", "kernels"},
    "training": FOUNDATION | {"capacity", "regularizers", "kernels", "model", "planning", "data", "runs"},
    "evaluation": METHOD | {"data", "envs", "runs", "training", "tables"},
    "interop": METHOD | {"data", "envs", "runs", "training", "evaluation"},
    "report": FOUNDATION | {"runs", "capacity", "model", "data", "envs", "evaluation", "tables", "theme"},
    "explorer": METHOD | {"runs", "data", "envs", "training", "evaluation", "theme"},
    "sweeps": METHOD | {"data", "envs", "runs", "training", "evaluation", "tables", "theme"},
    "demo": METHOD | {"data", "envs", "runs", "training", "evaluation"},
    "api": METHOD
    | {"data", "envs", "runs", "training", "evaluation", "interop", "report", "theme", "cli"}
    | {"sweeps", "demo", "tables"},
    "cli": METHOD
    | {"data", "envs", "runs", "training", "evaluation", "interop", "report", "sweeps", "demo", "tables", "theme"}
    | {"explorer"},
}
# A kernel knows the types whose numbers it computes with: knots of the quadrature, sizes of the encoder.
KERNELS_KNOW = {"alewm.regularizers.quadrature", "alewm.regularizers.inputs", "alewm.model.vit"}


def rooms():
    return sorted(
        {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
        - {"__init__", "__main__"}
    )


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            pytest.fail(f"{path} uses a relative import; write it out, so that the arrows can be read")
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} if node.module != "alewm" else {f"alewm.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("room", rooms())
def test_a_room_imports_only_what_lies_below_it(room):
    assert room in MAY_IMPORT, f"give the new room {room!r} its place in MAY_IMPORT"
    files = [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").exists() else sorted((SOURCE / room).rglob("*.py"))
    for path in files:
        modules = {name for name in imported_modules(path) if name.startswith("alewm.")}
        if room == "kernels":
            modules -= KERNELS_KNOW
        beyond = {name.split(".")[1] for name in modules} - MAY_IMPORT[room] - {room, "__version__"}
        assert not beyond, f"{path.relative_to(SOURCE)} imports from {sorted(beyond)}"


def test_the_library_never_imports_the_lab():
    assert list(LAB.rglob("*.py"))
    for path in SOURCE.rglob("*.py"):
        assert not [name for name in imported_modules(path) if name.startswith("alewm_lab")], path


def test_the_arrows_have_no_cycle():
    order: list[str] = []
    while len(order) < len(MAY_IMPORT):
        ready = [room for room in MAY_IMPORT if room not in order and MAY_IMPORT[room] <= set(order)]
        assert ready, f"cycle among {set(MAY_IMPORT) - set(order)}"
        order += ready


@pytest.mark.parametrize("user", ["alewm.evaluation.evaluate_run", "alewm.planning.policy", "alewm.api"])
def test_evaluating_and_planning_import_neither_the_trainer_nor_the_loss(user):
    probe = f"import sys, {user}\nprint(*[name for name in sys.modules if name.startswith('alewm.training')])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert not {f"alewm.training.{name}" for name in ("trainer", "objective", "step", "optim")} & {*done.stdout.split()}
