"""Calls every entry of the regularizers with right and wrong arguments; run under AddressSanitizer.

A right call gives the value and the gradients of the definition. A wrong one is refused with an InputError. Shape
annotations are not enforced in this process, as they are not in production.
"""

import ctypes
import json
import random
import sys
from collections import Counter
from unittest.mock import patch

import torch

from address_sanitizer import FLAGS
from alewm import CapacitySupport
from alewm.errors import InputError
from alewm.kernels import characteristic_function
from alewm.kernels.compiled import load_library
from alewm.regularizers.quadrature import EPPS_PULLEY
from alewm.regularizers.sigreg import MixSIGReg, PrefixSIGReg, SIGReg, mix_sigreg, prefix_sigreg, sigreg

characteristic_function._FLAGS = (*characteristic_function._FLAGS, *FLAGS)
LEADING = [(), (1,), (3,), (2, 3), (2, 1)]


def probabilities(*shape):
    return torch.randn(shape).softmax(-1)


def one_hot(*shape):
    return torch.eye(max(shape[-1], 1))[torch.randint(max(shape[-1], 1), shape[:-1])][..., : shape[-1]]


MAKERS = {"s": torch.randn, "q": probabilities, "prior": probabilities, "choice": one_hot, "u": torch.randn}
MAKERS["weight"] = torch.rand


class Entry:
    """One public function, the shapes it takes, and how to call it along a path."""

    def __init__(self, names, call, *, is_module=False):
        self.names, self.call, self.is_module = names, call, is_module

    def shapes(self, batch, N, P, support):
        """The right shape of every tensor; a module's samples are on its sample axis, here the first."""
        D, C = support.latent_dim, len(support)
        if self.is_module:
            return {"s": (N, *batch, D)} | dict.fromkeys(self.names[1:], (N, C))
        every = {"s": (*batch, N, D), "u": (*batch, D, P), "prior": (*batch, C)}
        return {name: every.get(name, (*batch, N, C)) for name in self.names}


def module(make):
    def call(tensors, support, path, P, axis):
        def along_path(s, weight, u, support, quadrature, _):
            return characteristic_function.prefix_mixture_cf(s, weight, u, support, quadrature, path)

        with patch("alewm.regularizers.sigreg.prefix_mixture_cf", along_path):
            return make(support, P)(*tensors, sample_axis=axis, generator=torch.Generator().manual_seed(1))

    return call


ENTRIES = {
    "MixSIGReg": Entry(["s", "q"], module(lambda k, P: MixSIGReg(k, 0.5, P)), is_module=True),
    "SIGReg": Entry(["s"], module(lambda k, P: SIGReg(P)), is_module=True),
    "PrefixSIGReg": Entry(["s", "choice"], module(lambda k, P: PrefixSIGReg(k, P)), is_module=True),
    "mix_sigreg": Entry(["s", "q", "u", "prior"], lambda t, k, path, *_: mix_sigreg(*t, k, path=path)),
    "sigreg": Entry(["s", "u"], lambda t, k, path, *_: sigreg(*t, path=path)),
    "prefix_sigreg": Entry(["s", "choice", "u"], lambda t, k, path, *_: prefix_sigreg(*t, k, path=path)),
    "prefix_mixture_cf": Entry(
        ["s", "weight", "u"],
        lambda t, k, path, *_: torch.stack(characteristic_function.prefix_mixture_cf(*t, k, EPPS_PULLEY, path)),
    ),
}


def changed(shape, random):
    """`shape` with one axis of another size, one axis more or one less, or two exchanged."""
    sizes, at = list(shape), random.randrange(len(shape))
    kind = random.choice(["size", "size", "size", "more", "less", "swap"])
    if kind == "size":
        sizes[at] = random.choice([0, 1, sizes[at] - 1, sizes[at] + 1, 2 * sizes[at], sizes[at] // 2, 50])
    elif kind == "more":
        sizes.insert(at, random.choice([1, 2]))
    elif kind == "less":
        del sizes[at]
    else:
        other = random.randrange(len(sizes))
        sizes[at], sizes[other] = sizes[other], sizes[at]
    return tuple(sizes)


def is_right(entry, shapes, support, axis):
    """Whether these shapes are what the entry is documented to take: the definition of a refusal."""
    D, C, s = support.latent_dim, len(support), shapes["s"]
    if entry.is_module:
        if len(s) < 2 or not -len(s) <= axis < len(s) or axis % len(s) == len(s) - 1 or 0 in s:
            return False
        rows = all(shapes[name] == (s[axis], C) for name in entry.names[1:])
        return rows and (len(entry.names) == 1 or s[-1] == D)
    if len(s) < 2 or 0 in s or ("u" in shapes and (not shapes["u"] or shapes["u"][-1] == 0)):
        return False
    width = s[-1] if entry.names == ["s", "u"] else D
    last = {"s": (s[-2], width), "u": (width, shapes["u"][-1]), "prior": (C,)}
    for name, shape in shapes.items():
        expected = last.get(name, (s[-2], C))
        lead = shape[: len(shape) - len(expected)]
        if shape[len(lead) :] != expected or len(lead) != len(s) - 2:
            return False
        if any(own not in (1, size) for own, size in zip(lead, s[:-2], strict=True)):
            return False
    return True


def in_memory(tensor, random):
    """The same values laid out otherwise: strided, or with a change of sign that is not carried out yet."""
    layout = random.choice(["plain", "plain", "strided", "negative"])
    if layout == "strided" and tensor.ndim:
        return torch.stack((tensor, tensor), -1)[..., 0]
    return torch._neg_view(-tensor) if layout == "negative" else tensor


def outcome(entry, tensors, support, path, P, axis):
    """The value and the gradients to all tensors that may have one, or the message of the refusal."""
    leaves = [tensor.detach().requires_grad_(name != "u") for name, tensor in zip(entry.names, tensors, strict=True)]
    try:
        value = entry.call(leaves, support, path, P, axis)
    except InputError as refusal:
        return str(refusal)
    gradients = torch.autograd.grad(value.sum(), [x for x in leaves if x.requires_grad], allow_unused=True)
    return [value.detach(), *(g for g in gradients if g is not None)]


def fuzz_entries(random, count, told):
    for _ in range(count):
        entry_name = random.choice(list(ENTRIES))
        entry, batch = ENTRIES[entry_name], random.choice(LEADING)
        support = CapacitySupport(tuple(sorted(random.sample(range(1, 20), random.randint(1, 4)))))
        N, P, axis = random.randint(1, 20), random.randint(1, 40), 0
        shapes = entry.shapes(batch, N, P, support)
        if not entry.is_module:
            for name in entry.names[1:]:  # leading axes may be shared
                lead = tuple(random.choice([1, size]) for size in batch)
                shapes[name] = lead + shapes[name][len(batch) :]
        if random.random() < 0.7:
            name = random.choice(entry.names)
            shapes[name] = changed(shapes[name], random)
        if entry.is_module and random.random() < 0.2:
            axis = random.randint(-4, 4)
        tensors = [in_memory(MAKERS[name](*shapes[name]), random) for name in entry.names]
        found = outcome(entry, tensors, support, "native", P, axis)
        where = f"{entry_name} {shapes} {support} axis {axis}"
        if is_right(entry, shapes, support, axis):
            assert not isinstance(found, str), f"refused: {where}: {found}"
            exact = outcome(entry, tensors, support, "reference", P, axis)
            for actual, expected in zip(found, exact, strict=True):
                scale = max(1.0, float(expected.abs().max()))
                assert (actual - expected).abs().max() <= 1e-4 * scale, f"wrong: {where}: {actual} for {expected}"
            told["right"] += 1
        else:
            assert isinstance(found, str), f"accepted: {where}"
            told["wrong shape"] += 1


SPOILT = {
    "device": lambda x, random: x.to("meta"),
    "dtype": lambda x, random: x.double(),
    "value": lambda x, random: random.choice([2 * x, x - 0.3, 0 * x]),
}


def fuzz_types(random, count, told):
    """Right shapes with a wrong dtype, device or value."""
    support, N, P = CapacitySupport((2, 5)), 6, 4
    for _ in range(count):
        entry_name = random.choice([name for name, entry in ENTRIES.items() if len(entry.names) > 1])
        entry = ENTRIES[entry_name]
        shapes = entry.shapes((3,), N, P, support)
        tensors = {name: MAKERS[name](*shapes[name]) for name in entry.names}
        name = random.choice(entry.names[1:])
        kinds = ["device", *(["value"] if name in ("q", "prior", "choice") else [])]
        kind = random.choice(kinds if entry.is_module else [*kinds, "dtype"])  # modules cast what they are given
        tensors[name] = SPOILT[kind](tensors[name], random)
        found = outcome(entry, tensors.values(), support, "auto", P, 0)
        assert isinstance(found, str), f"accepted: {entry_name} with another {kind} of {name}: {found}"
        told[f"wrong {kind}"] += 1


def fuzz_c_functions(random, count, told):
    """The guard in front of C refuses every buffer of another shape; C refuses sizes beyond its own buffers."""
    support = CapacitySupport((2, 5))
    for _ in range(count):
        G, shared, N, P = 6, random.choice([1, 2, 3, 6]), random.randint(1, 5), random.randint(1, 20)
        H, Q = G // shared, EPPS_PULLEY.num_knots
        shapes = [(G, N, 5), (H, N, 2), (H, 5, P), (G, Q, P), (G, Q, P), (G, N, 5), (G, N, 2)]
        name, at = random.choice([("prefix_mixture_forward", 5), ("prefix_mixture_backward", 7)])
        place = random.randrange(at)
        tensors = [torch.zeros(shape) for shape in shapes[:at]]
        characteristic_function._call_native(name, tensors[:3], tensors[3:], support, EPPS_PULLEY, shared)
        other = list(shapes[place])
        other[random.randrange(3)] += random.choice([-1, 1, 3])
        strided = torch.zeros(*shapes[place], 2)[..., 0]
        tensors[place] = random.choice([torch.zeros(other), tensors[place].double(), strided])
        if strided.is_contiguous():
            continue  # a single number has no strides
        try:
            characteristic_function._call_native(name, tensors[:3], tensors[3:], support, EPPS_PULLEY, shared)
        except InputError:
            told["wrong buffer"] += 1
        else:
            raise AssertionError(f"{name} took {[tuple(t.shape) for t in tensors]} with {shared} shared")
    forward = load_library(characteristic_function._SOURCE, characteristic_function._FLAGS).prefix_mixture_forward
    forward.argtypes = [ctypes.c_void_p] * 6 + characteristic_function._SIZES
    right = {"first": 0, "last": 0, "shared": 1, "N": 1, "D": 5, "C": 2, "P": 1, "Q": 2, "ends": (2, 5)}
    wrong = [{"D": 1025, "ends": (2, 1025)}, {"C": 65, "D": 65, "ends": range(1, 66)}, {"Q": 65}, {"ends": (2, 6)}]
    wrong += [{"ends": (5, 5)}, {"ends": (-1, 5)}, {"shared": 0}, {"last": -1}, {"N": 0}, {"P": 0}, {"C": 0}]
    for change in ({}, *wrong):
        sizes = right | change
        ends = (ctypes.c_int * len(sizes["ends"]))(*sizes.pop("ends"))
        status = forward(None, None, None, ctypes.addressof(ends), None, None, *sizes.values(), 0.1)
        assert status == bool(change), f"C returned {status} for {change}"
        told["wrong size in C"] += bool(change)


def refusals():
    """What is said about the calls that were once computed wrongly or wrote past their memory."""
    latents, P = torch.randn(128, 4, 64), 16
    regularizer = MixSIGReg(CapacitySupport((8, 16, 32, 64)), 1.0, P)
    calls = {
        "too few rows": (latents, probabilities(64, 4), 0),
        "too many rows": (latents, probabilities(256, 4), 0),
        "another axis": (latents, probabilities(128, 4), 1),
        "no such axis": (latents, probabilities(128, 4), 3),
        "other capacities": (latents, probabilities(128, 5), 0),
        "other width": (latents[..., :32], probabilities(128, 4), 0),
        "logits": (latents, torch.randn(128, 4), 0),
    }
    said = {}
    for name, (s, q, axis) in calls.items():
        try:
            said[name] = float(regularizer(s, q, sample_axis=axis, generator=torch.Generator()))
        except InputError as refusal:
            said[name] = str(refusal)
    return said


if __name__ == "__main__":
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(seed)
    told: Counter[str] = Counter()
    for part in (fuzz_entries, fuzz_types, fuzz_c_functions):
        part(random.Random(seed), count, told)
    print(json.dumps({"told": told, "refusals": refusals()}))
