"""What the trial of the fused kernels compiles is all that training runs, so that nobody waits twice."""

import os
import subprocess
import sys

# Kernels are told apart as on a GPU, but none is compiled or launched: a hook that returns True stops there.
ASKED_FOR = """
import torch
import triton
from triton.backends.compiler import GPUTarget


class Hopper:
    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


asked = set()


def note(*, key, fn, **_):
    asked.add((fn.name, key))
    return True


triton.runtime.driver.set_active(Hopper())
triton.knobs.runtime.jit_cache_hook = note

from alewm.kernels.encoder_blocks import through_blocks, why_kernels_fail
from alewm.model.vit import ViTBlock, ViTConfig

config = ViTConfig(image_size=8, patch_size=1, hidden_dim=64, num_heads=1, mlp_dim=64)
assert why_kernels_fail(config, torch.device("cpu")) is None
tried = set(asked)
for num_images in (15, 16):  # 16 blocks of 64 rows, and rows divisible by 16, which Triton would set apart
    for has_gradient in (True, False):
        blocks = [ViTBlock(config) for _ in range(2)]
        with torch.set_grad_enabled(has_gradient):
            x = torch.zeros(num_images, 65, 64, requires_grad=has_gradient)
            y = through_blocks(blocks, x, torch.bfloat16)
        if has_gradient:
            y.sum().backward()
print(*sorted(name.rsplit(".", 1)[-1] for name, _ in tried))
print(*(name for name, _ in asked - tried))
"""


def test_training_runs_the_kernels_that_the_trial_compiled_whatever_the_number_of_images():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", ASKED_FOR], env=environment, capture_output=True, text=True, check=True
    )
    tried, again = done.stdout.splitlines()
    assert tried.split() == [
        "add_norm_backward", "add_norm_forward", "first_token_backward", "image_attention_forward",
        "narrow_backward_resident", "patches_backward", "widen_resident",
    ]  # fmt: skip
    assert again == ""
