"""Which OpenGL back end MuJoCo draws with when there is no screen: EGL where it works, else OSMesa.

MuJoCo and dm_control read the environment variable MUJOCO_GL once, when they are imported, and PyOpenGL cannot change
its mind afterwards; so the choice is made before that (`alewm.envs.offscreen` does) and stays in the environment, where
child processes find it. Whether a back end works is found out by making a context with it in a process of its own: a
library that is present but has no device or driver behind it shows only then, and may take the process with it.

`python -m alewm.envs.rendering` says what was found. What is missing is printed as the one line to run. `--install`
(`make setup SYSTEM_PACKAGES=yes`, and in CI) runs that line. It never fails.
"""

import os
import shutil
import subprocess
import sys

from alewm.errors import InputError

VARIABLE = "MUJOCO_GL"
"""The environment variable that selects the back end of MuJoCo and dm_control; a user's choice is respected."""

BACK_ENDS = ("egl", "osmesa")
"""What is tried, in this order: EGL uses a graphics card where there is one, OSMesa draws in software."""

NONE_WORKS = "disabled"
"""The value of `VARIABLE` that lets physics be simulated where nothing can be drawn."""

PACKAGES = ("libosmesa6", "libegl1")
"""Debian packages either of which is enough; a graphics card needs the second and its driver."""

HOW_TO_INSTALL = f"sudo apt-get install -y {PACKAGES[0]}   # with an NVIDIA driver: {PACKAGES[1]}"
"""The one line to run."""

_PROBE = "import mujoco; context = mujoco.GLContext(8, 8); context.make_current(); context.free()"
_PROBE_SECONDS = 60.0
_INSTALL_SECONDS = 300.0


def choose_back_end() -> str:
    """The back end to draw with, also written to the environment; a probe runs only where none was chosen before."""
    if not os.environ.get(VARIABLE):
        working = (name for name in BACK_ENDS if works(name))
        os.environ[VARIABLE] = next(working, NONE_WORKS)
    return os.environ[VARIABLE]


def works(back_end: str) -> bool:
    """Whether a fresh process can make an off-screen context with `back_end`."""
    environment = {**os.environ, VARIABLE: back_end}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], env=environment, capture_output=True, timeout=_PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def cannot_draw(reason: object) -> InputError:
    """The error for a picture that was asked for where no back end works."""
    return InputError(
        f"No picture can be drawn: the OpenGL back end is {os.environ.get(VARIABLE)!r} (environment variable "
        f"{VARIABLE}), and it does not work here: {reason}. Unset {VARIABLE} to let it be chosen, or install a "
        f"back end:\n  {HOW_TO_INSTALL}"
    )


def install() -> None:
    """Install a software back end if none works and it takes no password; what it cannot do, it prints."""
    if any(works(name) for name in BACK_ENDS):
        return
    command = _install_command()
    if command is not None:
        print(f"Installing {PACKAGES[0]}, with which MuJoCo draws without a screen ...", flush=True)
        try:
            subprocess.run(command, capture_output=True, timeout=_INSTALL_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            print("The installation took too long and was given up.")


def _install_command() -> list[str] | None:
    """How this user installs on this system without being asked; None if they cannot."""
    if shutil.which("apt-get") is None:
        return None
    script = f"apt-get update -qq; apt-get install -y -qq {PACKAGES[0]}"
    if os.geteuid() == 0:
        return ["sh", "-c", script]
    if (
        shutil.which("sudo")
        and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0
    ):
        return ["sudo", "-n", "sh", "-c", script]
    return None


def main(arguments: list[str]) -> None:
    """Say which back end works; with `--install`, install one first where none does and it may."""
    if "--install" in arguments:
        install()
    found = [name for name in BACK_ENDS if works(name)]
    if found:
        print(f"MuJoCo draws off screen with {found[0]}.")
    else:
        print(f"MuJoCo cannot draw off screen here (Reacher and Cube need it). Run:\n  {HOW_TO_INSTALL}")


if __name__ == "__main__":
    main(sys.argv[1:])
