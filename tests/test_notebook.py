"""The quickstart notebook runs from its first cell to its last, with fewer episodes and updates."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"
FEWER = "episodes, updates = 12, 2"

# Runs each cell and shows the value of its last line, as a notebook does.
PLAYER = """
import ast, json, sys
names = {"__name__": "__main__"}
for number, source in enumerate(json.load(sys.stdin)):
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {number}", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
        if hasattr(value, "_repr_html_"):
            assert "<img" in value._repr_html_()
"""


def cells():
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_is_stored_without_outputs():
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells())


def test_every_cell_of_the_notebook_runs(tmp_path):
    sources = [
        FEWER if "parameters" in cell["metadata"].get("tags", ()) else "".join(cell["source"]) for cell in cells()
    ]
    assert FEWER in sources
    environment = {**os.environ, "MPLBACKEND": "Agg", "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PLAYER],
        cwd=NOTEBOOK.parent,
        env=environment,
        input=json.dumps(sources),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "a plan with" in done.stdout
    assert "after" in done.stdout
