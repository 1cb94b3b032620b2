"""The worked examples of docs/ecosystem.md run as they are printed, and its small parts load nothing else."""

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import documented_stable_worldmodel
from alewm.cli.main import main
from command_line import IMAGE_SIZE, SEARCH

PAGE = (Path(__file__).parents[2] / "docs" / "ecosystem.md").read_text()
BLOCKS = re.findall(r"```(python|bash)\n(.*?)```", PAGE, flags=re.DOTALL)
SMALL_PARTS = [code for kind, code in BLOCKS if kind == "python" and "from alewm import" in code]

# What a part may load besides `alewm` itself.
ROOMS = {
    "CEM": {"errors", "config", "shapes", "planning"},
    "CapacitySelector": {"capacity"},
    "SIGReg": {"devices", "distributed", "files", "kernels", "regularizers"},
    "MixSIGReg": set(),
}
OTHERS = ("h5py", "gymnasium", "matplotlib", "PIL", "tyro", "rich", "safetensors", "triton", "transformers")


def test_every_small_part_has_an_example():
    assert len(SMALL_PARTS) == len(ROOMS)
    assert all(any(f"import {part}" in code or f", {part}" in code for code in SMALL_PARTS) for part in ROOMS)


def test_small_parts_run_and_load_nothing_else():
    """In one process, from the least to the most: what is loaded then is all that the parts so far need."""
    code = "import sys\n"
    for part in ROOMS:
        example = next(code for code in SMALL_PARTS if re.search(rf"\b{part}\(", code))
        code += f"{example}\nprint(sorted(m for m in sys.modules if m.startswith('alewm.')))\n"
    code += f"print([name for name in {OTHERS!r} if name in sys.modules])\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *per_part, others = map(ast.literal_eval, done.stdout.splitlines())
    allowed = set()
    for part, modules in zip(ROOMS, per_part, strict=True):
        allowed |= ROOMS[part]
        assert {module.split(".")[1] for module in modules} <= allowed, part
    assert others == []


@pytest.fixture
def workshop(trained, data, tmp_path, monkeypatch):
    """The folder that the page speaks of."""
    shutil.copytree(trained, tmp_path / "runs/two-room")
    (tmp_path / "data").mkdir()
    shutil.copy(data, tmp_path / "data/two-room.h5")
    documented_stable_worldmodel.installed(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Pool:
    """Two environments as the policy meets them."""

    num_envs = 2
    action_space = gymnasium.spaces.Box(-1, 1, (2, 2))

    def observe(self):
        rng = np.random.default_rng(0)
        frames = {
            name: rng.integers(0, 256, (2, 1, IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8) for name in ("pixels", "goal")
        }
        return {**frames, "action": np.full((2, 1, 2), np.nan, np.float32)}


def test_the_worked_examples_run_in_the_order_of_the_page(workshop, monkeypatch, capsys):
    for kind, code in BLOCKS:
        if kind == "python" and code not in SMALL_PARTS:
            names: dict[str, object] = {}
            smaller = code.replace("num_samples=300, n_steps=30, topk=30", "num_samples=8, n_steps=2, topk=4")
            exec(compile(smaller, "docs/ecosystem.md", "exec"), names)
            if "policy" in names:
                policy, pool = names["policy"], Pool()
                policy.set_env(pool)
                actions = policy.get_action(pool.observe())
                assert actions.shape == (2, 2)
                assert np.isfinite(actions).all()
        elif kind == "bash":
            for line in code.splitlines():
                words = shlex.split(line)
                smaller = (*SEARCH, "--animations", 0) if words[1] == "evaluate" else ()
                monkeypatch.setattr(sys, "argv", ["alewm", *words[1:], *map(str, smaller)])
                main()
    assert (workshop / "pretrained/two-room/README.md").is_file()
    assert "success" in capsys.readouterr().out
