"""Which OpenGL back end MuJoCo draws with when there is no screen: EGL where it works, else OSMesa.

MuJoCo and dm_control read the environment variable MUJOCO_GL once, when they are imported, and PyOpenGL cannot change
its mind afterwards; so the choice is made before that (`alewm.envs.offscreen` does) and stays in the environment, where
child processes find it. Whether a back end works is found out by making a context with it in a process of its own: a
library that is present but has no device or driver behind it shows only then, and may take the process with it.

`python -m alewm.envs.opengl` says what was found. What is missing is printed as the one line to run.
"""

import os
import subprocess
import sys

from alewm.errors import InputError

VARIABLE = "MUJOCO_GL"
"""The environment variable that selects the back end of MuJoCo and dm_control; a user's choice is respected."""

BACK_ENDS = ("egl", "osmesa")
"""What is tried, in this order: EGL uses a graphics card where there is one, OSMesa draws in software."""

NONE_WORKS = "disabled"
"""The value of `VARIABLE` that lets physics be simulated where nothing can be drawn."""

HOW_TO_INSTALL = "sudo apt-get install -y libosmesa6   # with an NVIDIA driver: libegl1"
"""The one line to run; either package is enough, and a graphics card needs the second and its driver."""

_PROBE = "import mujoco; context = mujoco.GLContext(8, 8); context.make_current(); context.free()"
_PROBE_SECONDS = 60.0


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


def main() -> None:
    """Say which back end works, and what to install where none does."""
    found = [name for name in BACK_ENDS if works(name)]
    if found:
        print(f"MuJoCo draws off screen with {found[0]}.")
    else:
        print(f"MuJoCo cannot draw off screen here (Reacher and Cube need it). Run:\n  {HOW_TO_INSTALL}")


if __name__ == "__main__":
    main()
