"""Two processes with half the samples each compute the loss and the gradient of one process with all of them."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from alewm import CapacitySupport, MixSIGReg, SIGReg
from alewm.regularizers.sigreg import PrefixSIGReg

SUPPORT = CapacitySupport((2, 5, 8))
WEIGHTS, RANKS, NUM, FRAMES = (6, 8), 2, 24, 3


def losses(network, logits, inputs, choice):
    """All three regularizers of a small shared network."""
    s = (inputs @ network).tanh()
    q = logits.softmax(-1).expand(len(inputs), -1)

    def fresh():
        return torch.Generator().manual_seed(3)

    return {
        "sigreg": SIGReg(16)(s, sample_axis=0, generator=fresh()),
        "mix": MixSIGReg(SUPPORT, -0.5, 16)(s, q, sample_axis=0, generator=fresh()),
        "prefix": PrefixSIGReg(SUPPORT, 16)(s, choice, sample_axis=0, generator=fresh()),
    }


def problem():
    generator = torch.Generator().manual_seed(0)
    network = torch.randn(WEIGHTS, generator=generator, dtype=torch.float64)
    logits = torch.randn(3, generator=generator, dtype=torch.float64)
    inputs = torch.randn(NUM, FRAMES, WEIGHTS[0], generator=generator, dtype=torch.float64)
    choice = torch.eye(3, dtype=torch.float64)[torch.randint(3, (NUM,), generator=generator)]
    return network.requires_grad_(), logits.requires_grad_(), inputs, choice


def values_and_gradients(network, logits, inputs, choice):
    result = {}
    for name, loss in losses(network, logits, inputs, choice).items():
        gradients = torch.autograd.grad(loss, (network, logits), allow_unused=True, retain_graph=True)
        network_gradient, logits_gradient = gradients
        result[name] = [loss.detach(), network_gradient]
        if logits_gradient is not None:
            result[name].append(logits_gradient)
    return result


def one_rank(rank, address, results):
    dist.init_process_group("gloo", init_method=f"file://{address}", rank=rank, world_size=RANKS)
    network, logits, inputs, choice = problem()
    part = slice(rank * NUM // RANKS, (rank + 1) * NUM // RANKS)
    found = values_and_gradients(network, logits, inputs[part], choice[part])
    for tensors in found.values():
        for gradient in tensors[1:]:  # data-parallel training averages parameter gradients over ranks
            dist.all_reduce(gradient)
            gradient /= RANKS
    results[rank] = {name: [t.tolist() for t in tensors] for name, tensors in found.items()}
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    expected = values_and_gradients(*problem())
    with mp.get_context("spawn").Manager() as manager:
        results = manager.dict()
        mp.spawn(one_rank, args=(tmp_path / "meeting", results), nprocs=RANKS)
        found = dict(results)
    for rank in range(RANKS):
        for name, tensors in expected.items():
            for actual, exact in zip(found[rank][name], tensors, strict=True):
                torch.testing.assert_close(torch.tensor(actual, dtype=torch.float64), exact, rtol=1e-9, atol=1e-12)
