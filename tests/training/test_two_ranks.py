"""Two processes that share a batch compute what one process with all of it computes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from run_squares import train_slowly
from safetensors.torch import load_file, save_file

from alewm.distributed import leave_ranks, share_of_batch, start_ranks, this_rank
from alewm.model.checkpoint_files import checkpoints_in
from alewm.model.world_model import build_world_model
from alewm.training.checkpoint import load_world_model
from alewm.training.config import OptimConfig
from alewm.training.objective import Objective
from alewm.training.random_streams import RandomStreams
from alewm.training.step import build_optimizer, update
from memory_windows import MODEL_OF, draw_windows, run_config

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
CPU = torch.device("cpu")
BATCH = 24


def first_update(method: str) -> dict[str, torch.Tensor]:
    """Loss, gradients and buffers of one update, of this rank's rows of one batch."""
    config = run_config(method)
    model = build_world_model(config.model, torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=g))
    share = share_of_batch(BATCH)
    windows = draw_windows(BATCH).rows(this_rank() * share, (this_rank() + 1) * share)
    streams = RandomStreams(7, CPU)
    noise = streams.draw_step(model, share, 3, drops=True)
    result = update(
        model,
        Objective(config.objective, config.model),
        build_optimizer(model, OptimConfig()),
        *windows,
        noise,
        streams.directions,
        clip_norm=1e9,
    )
    return {
        "loss": result.total,
        "norm": result.gradient_norm,
        **{f"gradient/{name}": p.grad for name, p in model.named_parameters()},
        **{f"buffer/{name}": buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()},
    }


def launch(script: Path, *arguments: str) -> None:
    """Run a script in two processes, which meet at a port that torchrun holds: one found free may be taken by then."""
    paths = os.pathsep.join([str(SOURCE), str(HERE), str(HERE.parent / "helpers")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    subprocess.run([*torchrun, str(script), *arguments], env=environment, check=True)


@pytest.fixture(scope="module")
def both_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    launch(Path(__file__), str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(MODEL_OF))
def test_two_ranks_have_the_loss_and_gradients_of_one(both_ranks, method):
    one = first_update(method)
    for rank in range(2):
        found = load_file(both_ranks / f"{method}-{rank}.safetensors")
        for name, expected in one.items():
            # Some gradients are zero but for rounding: a bias before a batch normalisation, an attention's key bias.
            allowed = 5e-4 * expected.norm() + 1e-4 * one["norm"]
            assert (found[name] - expected).norm() <= allowed, name


@pytest.mark.slow
def test_a_run_on_two_ranks_is_one_run(both_ranks, tmp_path):
    train_slowly(tmp_path)
    one, two = (
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (tmp_path, both_ranks)
    )
    assert [(line["step"], line["kind"]) for line in one] == [(line["step"], line["kind"]) for line in two]
    for name in ("loss", "prediction", "regularizer", "q_entropy"):
        assert two[0][name] == pytest.approx(one[0][name], rel=1e-3)
    assert two[-1]["effective_rank"] == pytest.approx(one[-1]["effective_rank"], rel=0.1)
    model, description = load_world_model(checkpoints_in(both_ranks / "checkpoints")[-1])
    assert description.step == 30
    assert all(tensor.isfinite().all() for tensor in model.state_dict().values())


@pytest.mark.slow
def test_no_thread_of_a_rank_outlives_its_goodbye(both_ranks):
    for rank in range(2):
        assert len(json.loads((both_ranks / f"threads-{rank}.json").read_text())) == 1


def thread_names() -> list[str]:
    """The threads of this process, those that Python does not know included."""
    return [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    start_ranks(CPU)
    folder = Path(sys.argv[1])
    for method in MODEL_OF:
        tensors = {name: tensor.contiguous().clone() for name, tensor in first_update(method).items()}
        save_file(tensors, folder / f"{method}-{this_rank()}.safetensors")
    train_slowly(folder)
    rank = this_rank()
    leave_ranks()
    (folder / f"threads-{rank}.json").write_text(json.dumps(thread_names()))
