"""What `docs/planning.md` shows is what happens: its example plans and acts as it stands."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_examples_arrive_at_their_goal():
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs/planning.md").read_text(), flags=re.DOTALL)
    together = "\n".join(examples)
    done = subprocess.run([sys.executable, "-c", together], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        missed_by = [float(number) for number in line.strip(" []").split()]
        assert len(missed_by) == 2
        assert max(map(abs, missed_by)) < 16, "in pixels of a room of 224; success is counted below 16"
