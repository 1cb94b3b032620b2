"""Every Triton kernel compiles for an H100 or H200; no GPU is needed for that, since Triton brings NVIDIA's assembler.

Kernels are told apart and compiled as on a GPU, and none is launched. Triton's interpreter, which checks their results
elsewhere, accepts code that its compiler refuses.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

SHARED_MEMORY = 227 * 1024
"""Bytes that one program may use on Hopper."""

WITHOUT_A_GPU = """
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


triton.runtime.driver.set_active(Hopper())
"""

COMPILE_ALL = (
    WITHOUT_A_GPU
    + """
from triton.runtime.jit import JITFunction

compiled = {}
run = JITFunction.run


def compile_only(kernel, *args, warmup, **options):
    made = run(kernel, *args, warmup=True, **options)
    if made is not None:  # A kernel called by another one is compiled with its caller.
        compiled[kernel.__name__] = max(compiled.get(kernel.__name__, 0), made.metadata.shared)
        assert made.asm["cubin"]
    return made


JITFunction.run = compile_only

from alewm.capacity.support import CapacitySupport
from alewm.kernels.characteristic_function_triton import prefix_mixture_cf
from alewm.kernels.distilled_rollout import pack, roll_out
from alewm.kernels.encoder_blocks import run_narrow_backward, run_widen, through_blocks
from alewm.kernels.predictor_blocks import residual_norm, short_attention
from alewm.kernels.raster_triton import Blocks, TritonRenderer
from alewm.kernels.tiles import tile_of
from alewm.model.vit import ViTBlock, ViTConfig
from alewm.planning.distilled import DistilledDynamics, DynamicsConfig
from alewm.planning.noise import drawn_at_once
from alewm.regularizers.quadrature import EPPS_PULLEY
from triangle_scenes import random_poses, random_scene

support = CapacitySupport((4, 8, 16, 32, 96, 192))
s, q = torch.randn(4, 128, 192, requires_grad=True), torch.rand(1, 128, 6, requires_grad=True)
sum(part.sum() for part in prefix_mixture_cf(s, q, torch.randn(1, 192, 1024), support, EPPS_PULLEY)).backward()

drawn_at_once([(3072, 0, 0)], (10, 300, 5, 10), "cpu")

W, N = 192, 300
for dtype in (torch.float32, torch.bfloat16):
    shift, scale, gate = torch.randn(N, 1, 3 * W, dtype=dtype).chunk(3, -1)
    x, y = torch.randn(2, N, W, dtype=dtype)
    for modulation, branch in [((shift, scale), None), ((shift, scale), (gate, y)), (None, (gate, y))]:
        residual_norm(x, torch.ones(W), torch.zeros(W), dtype, modulation=modulation, branch=branch)
    for num_known in (2, 3):
        known = list(torch.randn(num_known, N, 3 * 1024, dtype=dtype))
        for num_asked in (1, num_known):
            short_attention(known, 16, num_asked=num_asked)

for capacity in (8, 192):  # weights that stay on the chip, and weights read in every step
    net = DistilledDynamics(DynamicsConfig(capacity, 10))
    packed = pack(net.mean, net.std, net.state_layer, net.action_layer, net.hidden_layer, net.output_layer)
    roll_out(packed, torch.zeros(N, capacity), torch.zeros(N, 5, 10))

blocks = [ViTBlock(ViTConfig(image_size=224, patch_size=14, hidden_dim=192, num_heads=3, mlp_dim=768))]
through_blocks(blocks, torch.zeros(4, 257, 192, requires_grad=True), torch.bfloat16).sum().backward()
# Rows stay on the chip where weights cannot, on GPUs before Hopper.
x, w1, slope = (torch.zeros(shape, dtype=torch.bfloat16) for shape in ((512, W), (4 * W, W), (512, 4 * W)))
run_widen(x, w1, slope[0], tile_of("widen", 4 * W))
run_narrow_backward(x, w1.T, slope, tile_of("narrow_backward", 4 * W))

for kind in ({}, {"spot": False, "mirror": False}, {"caster": False, "spot": False}):
    scene = random_scene(5, **kind)
    for blocks in (Blocks(), Blocks(32, 128, filled=1024, casting=128)):
        TritonRenderer(scene, torch.device("cpu"), blocks).draw(random_poses(5, scene, 2))

for name, shared in sorted(compiled.items()):
    print(name, shared)
"""
)

TRAINING_AFTER_THE_TRIAL = (
    WITHOUT_A_GPU
    + """
asked = set()


def note(*, key, fn, **_):
    asked.add((fn.name, key))
    return True  # Nothing is compiled.


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
)


def run_apart(script: str, cache: Path) -> list[str]:
    """The lines that `script` prints in a process whose Triton compiles."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TRITON_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def kernels_launched() -> set[str]:
    """Kernels that the library's modules launch, as `name[grid](...)`."""
    folder = Path(__file__).parents[2] / "src/alewm"
    defined = {
        name
        for path in folder.glob("kernels/*_kernels.py")
        for name in re.findall(r"@triton\.jit.*\ndef (\w+)", path.read_text())
    }
    text = "".join(path.read_text() for path in folder.rglob("*.py"))
    return {name for name in defined if re.search(rf"\b{name}\[", text)}


def test_every_kernel_compiles_within_a_gpu_s_memory(tmp_path):
    shared = dict(line.split() for line in run_apart(COMPILE_ALL, tmp_path))
    assert shared.keys() == kernels_launched()
    assert all(int(size) <= SHARED_MEMORY for size in shared.values()), shared


def test_training_runs_the_kernels_that_the_trial_compiled_whatever_the_number_of_images(tmp_path):
    tried, again = run_apart(TRAINING_AFTER_THE_TRIAL, tmp_path)
    assert tried.split() == [
        "add_norm_backward", "add_norm_forward", "first_token_backward", "image_attention_forward",
        "narrow_backward_resident", "patches_backward", "widen_resident",
    ]  # fmt: skip
    assert again == ""
