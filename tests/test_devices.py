"""Any device, by name: none is written into the code, and what one lacks is said."""

import ast
import os
import re
from pathlib import Path

import pytest
import torch

from alewm.devices import busy_note, find_device, simulation_device, why_no_bfloat16
from alewm.errors import InputError
from alewm.training.acceleration import choose_acceleration
from alewm.training.config import TrainingConfig

SOURCE = Path(__file__).parents[1] / "src" / "alewm"
MPS = torch.device("mps")

# Files that may name a device beyond comparing a kind, and why.
MAY_NAME = {
    "devices.py": "the one place where names become devices",
    "capacity/support.py": "the default where no device is given",
    "training/random_streams.py": "the default where no device is given",
    "training/checkpoint.py": "the default where no device is given",
    "evaluation/decoder.py": "the default where no device is given",
    "evaluation/imagination.py": "the default where no device is given",
    "envs/batched_drawing.py": "Triton draws on the GPU that was found",
    "planning/planner.py": "a model without parameters is nowhere else",
    "interop/lewm_format.py": "files are read into memory first",
    "sweeps/jobs.py": "a trial that takes no GPU computes on the CPU",
    "demo.py": "the small demo trains one model per core, where it repeats bit by bit",
}


def named_devices(path: Path) -> list[int]:
    """Lines that name a device, other than to compare a kind, as a key, or as the default of a parameter or field."""
    tree = ast.parse(path.read_text())
    harmless: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            harmless |= {id(part) for part in ast.walk(node)}
        elif isinstance(node, ast.Dict):
            harmless |= {id(key) for key in node.keys}
        elif isinstance(node, ast.arguments):
            harmless |= {id(default) for default in (*node.defaults, *node.kw_defaults)}
        elif isinstance(node, ast.AnnAssign):
            harmless.add(id(node.value))
    lines = []
    for node in ast.walk(tree):
        is_name = isinstance(node, ast.Constant) and re.fullmatch(r"(cpu|cuda|mps|xpu)(:\d+)?", str(node.value))
        is_move = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda"
        if (is_name and id(node) not in harmless) or is_move:
            lines.append(node.lineno)  # type: ignore[attr-defined]
    return lines


def test_no_device_is_written_into_the_code():
    naming = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if named_devices(path)}
    assert naming <= set(MAY_NAME), f"take a device as an argument in {sorted(naming - set(MAY_NAME))}"
    assert set(MAY_NAME) <= naming, f"no longer needed in MAY_NAME: {sorted(set(MAY_NAME) - naming)}"


def test_the_search_finds_what_it_looks_for(tmp_path):
    for code in ("x.cuda()", "x.to('cuda:0')", "f(device='mps')", "torch.device('cpu')"):
        (tmp_path / "code.py").write_text(code)
        assert named_devices(tmp_path / "code.py") == [1], code
    (tmp_path / "code.py").write_text("def f(device='cpu'): return {'cuda': 1}[device.type] if device == 'mps' else 0")
    assert named_devices(tmp_path / "code.py") == []


def test_a_device_is_found_by_name(monkeypatch):
    assert find_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert find_device("auto") == torch.device("cpu")
    with pytest.raises(InputError, match=r"'cuda' was asked for, but torch .* sees none\. Choose another"):
        find_device("cuda")
    with pytest.raises(InputError, match="'mps' was asked for"):
        find_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert find_device("auto") == find_device("mps") == MPS
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("auto") == torch.device("cuda")
    assert find_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(InputError, match=r"'cuda:2' was asked for, but torch .* sees 2 of cuda, counted from 0"):
        find_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "meta"])
def test_an_unknown_device_is_refused(name):
    with pytest.raises(InputError, match=r"auto, cpu, cuda"):
        find_device(name)


def test_what_a_device_lacks_is_said():
    assert why_no_bfloat16(torch.device("cpu")) is None
    with pytest.raises(InputError, match="bfloat16 was asked for, but on Apple's GPUs only float32 is supported"):
        TrainingConfig(precision="bfloat16").autocast_dtype(MPS)
    assert TrainingConfig().autocast_dtype(MPS) is None
    assert TrainingConfig().autocast_dtype(torch.device("cpu")) is None
    assert TrainingConfig(precision="bfloat16").autocast_dtype(torch.device("cpu")) is torch.bfloat16
    for device in (torch.device("cpu"), MPS):
        assert choose_acceleration("auto", device).path == "none"
        with pytest.raises(InputError, match=f"cannot be compiled: the device is a {device.type}"):
            choose_acceleration("compile", device)


def test_environments_stay_where_float64_is():
    assert simulation_device(MPS) == torch.device("cpu")
    assert simulation_device(torch.device("cuda", 1)) == torch.device("cuda", 1)


def test_training_on_a_busy_cpu_is_told_how_many_threads_are_of_use(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "getloadavg", lambda: (6.0, 0.0, 0.0))
    assert "OMP_NUM_THREADS=2" in busy_note(torch.device("cpu"))
    assert busy_note(torch.device("cuda")) == ""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.0, 0.0))
    assert busy_note(torch.device("cpu")) == ""
