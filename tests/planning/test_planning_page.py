"""What `docs/planning.md` shows is what happens: its example plans and acts as it stands."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_arrives_at_its_goal():
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/planning.md").read_text(), flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True, check=True)
    missed_by = [float(number) for number in done.stdout.strip(" []\n").split()]
    assert len(missed_by) == 2
    assert max(map(abs, missed_by)) < 16, "in pixels of a room of 224; success is counted below 16"
