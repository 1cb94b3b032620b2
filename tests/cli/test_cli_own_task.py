"""An environment in a package of one's own, by the page about it: entered there, known to every command here."""

import os
import re
import shlex
from pathlib import Path

import pytest

from command_line import SEARCH, run_alewm

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "own-task.md").read_text()
SMALLER = {
    "collect": ("--episodes", 20, "--jobs", 2),
    "train": ("--steps", 3, "--batch-size", 8),
    "evaluate": ("--episodes", 2, *SEARCH),
    "probe": ("--frames", 300, "--test-frames", 100, "--updates", 5),
}
BROKEN = {
    "no-module": ("no_such_module:TASK", "cannot be loaded: No module named 'no_such_module'"),
    "no-task": ("my_robot:TASKS", "cannot be loaded: module 'my_robot' has no attribute 'TASKS'"),
    "no-object": ("my_robot:PointEnvs", "must be a Task of that name, found <class 'my_robot.PointEnvs'>"),
    "another-name": ("my_robot:TASK", "must be a Task of that name, found Task(name='my-robot'"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the page's package as if it were installed there, and with some that are broken."""
    folder = tmp_path_factory.mktemp("site")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (folder / "my_robot.py").write_text(code)
    group, entry = re.search(r"entry-points\.\"(.*)\"\]\n(.*) = \"(.*)\"", PAGE).expand(r"\1|\2 = \3").split("|")
    entries = [entry, *(f"{name} = {home}" for name, (home, _) in BROKEN.items())]
    described = folder / "my_robot-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: my-robot\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("\n".join([f"[{group}]", *entries, ""]))
    return folder


def test_the_commands_of_the_page_run_in_their_order(site, tmp_path):
    (commands,) = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
    for command in commands.splitlines():
        words = shlex.split(command)[1:]
        said = run_alewm(tmp_path, *words, *SMALLER.get(words[0], ()), PYTHONPATH=str(site)).stdout
        if words[0] == "probe":
            assert {"position[0]", "position[1]"} <= set(said.split())
    assert "my-robot" in (tmp_path / "runs/report/index.html").read_text()


@pytest.mark.parametrize("name", BROKEN)
def test_a_task_that_was_entered_wrongly_says_by_whom(site, tmp_path, name):
    done = run_alewm(tmp_path, "collect", name, "--out", "a.h5", check=False, PYTHONPATH=str(site))
    home, expected = BROKEN[name]
    assert done.returncode == 2
    assert done.stderr.startswith(f"alewm: The task {name!r}, entered as {home!r} by my-robot, {expected}")


def test_an_unknown_task_is_told_of_entered_ones_too(site, tmp_path):
    done = run_alewm(tmp_path, "collect", "my-robto", "--out", "a.h5", check=False, PYTHONPATH=str(site))
    assert "my-robot" in done.stderr


def test_the_pendulum_of_the_guide_is_recorded_trained_on_and_evaluated(tmp_path):
    guide = (DOCS / "guides" / "own-robot.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
    (tmp_path / "my_pendulum.py").write_text(code.replace('pendulum.h5", 200)', 'pendulum.h5", 20, num_steps=40)'))
    described = tmp_path / "my_pendulum-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: my-pendulum\nVersion: 1\n")
    entered = re.search(r"\[project\.entry-points\.\"(.*)\"\]\n(.*) = \"(.*)\"", guide)
    assert entered is not None
    (described / "entry_points.txt").write_text(entered.expand(r"[\1]\n\2 = \3\n"))
    (commands,) = [
        block for block in re.findall(r"```bash\n(.*?)```", guide, flags=re.DOTALL) if "my_pendulum" in block
    ]
    here = {"PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))}
    for command in commands.splitlines():
        program, *words = shlex.split(command)
        launcher = ("-m", "my_pendulum") if program == "python" else None
        arguments = () if launcher else (*words, *SMALLER.get(words[0], ()))
        run_alewm(tmp_path, *arguments, launcher=launcher, **here)
    assert "pendulum" in (tmp_path / "runs/report/index.html").read_text()
