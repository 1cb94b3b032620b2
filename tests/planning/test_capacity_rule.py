"""How an episode's capacity is named, drawn and refused."""

import pytest
import torch

from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError
from alewm.planning.capacity_rule import CapacityRule, parse_capacity_rule

SUPPORT = CapacitySupport((8, 32, 64))


def choices(rule, q, episodes=None, seed=0):
    q = torch.tensor(q)
    return rule.choices(q, SUPPORT, seed, list(range(len(q))) if episodes is None else episodes)


def test_modal_takes_the_most_probable_and_the_smaller_of_equals():
    assert choices(CapacityRule(), [[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]]) == [(32,), (8,)]


def test_fixed_ignores_the_selector():
    assert choices(CapacityRule("named", (64,)), [[1.0, 0.0, 0.0]] * 2) == [(64,), (64,)]


def test_sampling_follows_q():
    drawn = [k for (k,) in choices(CapacityRule("sample"), [[0.2, 0.5, 0.3]] * 4000)]
    for capacity, probability in zip(SUPPORT.capacities, (0.2, 0.5, 0.3), strict=True):
        assert abs(drawn.count(capacity) / 4000 - probability) < 0.03


def test_a_sample_belongs_to_its_seed_and_episode_not_to_its_batch():
    q = [[0.3, 0.3, 0.4]] * 50
    together = choices(CapacityRule("sample"), q)
    assert [choices(CapacityRule("sample"), q[:1], [e])[0] for e in range(50)] == together
    assert choices(CapacityRule("sample"), q, seed=1) != together


@pytest.mark.parametrize("certain", [0, 1, 2])
def test_a_certain_q_leaves_nothing_to_chance(certain):
    q = torch.eye(3)[certain].tolist()
    assert set(choices(CapacityRule("sample"), [q] * 200)) == {(SUPPORT.capacities[certain],)}


def test_probabilities_that_rounding_left_short_of_one_leave_the_rest_to_the_largest():
    assert choices(CapacityRule("sample"), [[0.0, 0.0, 1e-9]] * 5) == [(64,)] * 5


def test_best_of_tries_what_it_names_or_everything():
    assert choices(parse_capacity_rule("best-of:64,8", SUPPORT), [[0.2, 0.5, 0.3]]) == [(8, 64)]
    assert choices(parse_capacity_rule("best-of", SUPPORT), [[0.2, 0.5, 0.3]]) == [(8, 32, 64)]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("modal", CapacityRule()),
        ("sample", CapacityRule("sample")),
        ("best-of", CapacityRule("named", (8, 32, 64))),
        ("best-of:8,64", CapacityRule("named", (8, 64))),
        ("32", CapacityRule("named", (32,))),
    ],
)
def test_rules_have_names(text, rule):
    assert parse_capacity_rule(text, SUPPORT) == rule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model", "Unknown capacity rule 'model'. Did you mean 'modal'"),
        ("33", r"Capacity 33 is not supported; choose one of \(8, 32, 64\)"),
        ("best-of:8,33", "Capacity 33 is not supported"),
        ("best-of:8;32", "got '8;32'"),
        ("-8", "A capacity is one of"),
        ("modal:8", "Unknown capacity rule 'modal:8'"),
        ("modal:", "Unknown capacity rule 'modal:'"),
        ("best-of:", "best-of: names no capacities; write best-of:8,32, or best-of for all"),
        ("best-of:8,8", "best-of:8,8 names a capacity twice"),
        ("best-of:8,", "got ''"),
    ],
)
def test_bad_rules_are_refused_by_name(text, message):
    with pytest.raises(InputError, match=message):
        parse_capacity_rule(text, SUPPORT)
