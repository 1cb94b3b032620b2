"""Shape annotations are enforced while testing, and no test depends on how fast the machine is."""

import os
import signal

# Tests run side by side, one per core. Idle threads that wait for each other's cores took three quarters of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRITON_INTERPRET", "1")  # GPU kernels are tested for what they compute, without a GPU

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# Triton reads the source of its kernels, so these modules are imported as they are written.
import alewm.kernels.characteristic_function_kernels
import alewm.kernels.image_attention_kernels
import alewm.kernels.planning_kernels
import alewm.kernels.raster_kernels
import alewm.kernels.token_kernels  # noqa: F401

install_import_hook(["alewm", "alewm_lab"], "beartype.beartype")

# A suite started in the background inherits an ignored SIGINT and would hand it to every command it interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item):
    """Numbers that a test draws from the global generator are the same in every run and every order of tests."""
    import torch

    torch.manual_seed(0)


settings.register_profile("alewm", deadline=None)
settings.load_profile("alewm")


def pytest_collection_modifyitems(items):
    """Without a back end for MuJoCo, tests of the tasks that need one are left out by name, with the line to run."""
    from alewm.envs import opengl

    needy = [item for item in items if any(word in item.nodeid for word in ("cube", "reacher", "test_opengl"))]
    if needy and opengl.choose_back_end() not in opengl.BACK_ENDS:
        for item in needy:
            item.add_marker(pytest.mark.skip(reason=f"MuJoCo cannot draw here; run: {opengl.HOW_TO_INSTALL}"))
