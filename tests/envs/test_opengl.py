"""Off-screen drawing: the back end is chosen by trying it, told to child processes, and leaves quietly."""

import os
import subprocess
import sys

from alewm.envs import opengl

DRAW = "from alewm.envs.reacher import ReacherSimulator; print(ReacherSimulator().draw().shape)"


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, check=False)


def test_the_choice_is_made_by_trying_and_kept_for_child_processes():
    code = (
        "import os, subprocess, sys; from alewm.envs import opengl; tried = []\n"
        "really_works = opengl.works\n"
        "opengl.works = lambda name: tried.append(name) or really_works(name)\n"
        "chosen = opengl.choose_back_end(); assert tried and chosen == tried[-1] == opengl.choose_back_end()\n"
        "assert len(tried) == len(set(tried)), 'asked again'\n"
        "child = 'from alewm.envs import opengl; opengl.works = None; print(opengl.choose_back_end())'\n"
        "assert subprocess.check_output([sys.executable, '-c', child], text=True).strip() == chosen; print(chosen)"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in opengl.BACK_ENDS


def test_a_library_without_a_driver_is_not_chosen(monkeypatch):
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", "/nowhere/at/all.json")
    monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
    assert not opengl.works("egl")
    assert not opengl.works("no-such-thing")


def test_a_users_choice_is_respected_and_the_end_is_quiet():
    working = [back_end for back_end in opengl.BACK_ENDS if opengl.works(back_end)]
    assert working, f"nothing to draw with; {opengl.HOW_TO_INSTALL}"
    for back_end in working:
        # dm_control has exit handlers of its own, and ends EGL in them.
        done = python(f"{DRAW}; import dm_control.suite, os; print(os.environ['MUJOCO_GL'])", MUJOCO_GL=back_end)
        assert (done.stdout, done.stderr) == (f"(224, 224, 3)\n{back_end}\n", "")


def test_what_draws_can_train_afterwards():
    """Software rendering and torch's compiler each bring an LLVM, which must not meet."""
    done = python(f"import alewm.envs.cube; {DRAW}; import torch._dynamo; print('trained')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "(224, 224, 3)\ntrained\n", "")


def test_without_a_back_end_physics_works_and_a_picture_gets_the_line_to_run():
    code = (
        "from alewm.envs.reacher import ReacherSimulator; from alewm.errors import InputError\n"
        "arm = ReacherSimulator(); arm.substep([1.0, 1.0])\n"
        "try:\n    arm.draw()\nexcept InputError as error:\n    print(error)"
    )
    done = python(code, MUJOCO_GL=opengl.NONE_WORKS)
    assert "apt-get install -y libosmesa6" in done.stdout
    assert "No picture can be drawn" in done.stdout


def test_the_module_says_what_it_found_and_never_fails():
    command = [sys.executable, "-m", "alewm.envs.opengl"]
    for paths in (os.environ.get("__EGL_VENDOR_LIBRARY_FILENAMES"), "/nowhere/at/all.json"):
        environment = {**os.environ, **({"__EGL_VENDOR_LIBRARY_FILENAMES": paths} if paths else {})}
        environment.pop("PYOPENGL_PLATFORM", None)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert "MuJoCo draws off screen with" in done.stdout or "apt-get install" in done.stdout
