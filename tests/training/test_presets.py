"""Presets are the paper's rows, and complete."""

import pytest
import torch

from alewm.capacity.support import polynomial_prior
from alewm.config import from_dict, to_dict
from alewm.errors import InputError
from alewm.model.world_model import WorldModel
from alewm.training.config import RunConfig
from alewm.training.objective import Objective
from alewm.training.presets import (
    CAPACITIES,
    SELECTED,
    make_preset,
    preset,
    preset_flags,
    preset_names,
    resolve_preset,
)

PAPER_ROWS = """
 96 two-room 0.15 3  3
 96 push-t   0.09 2 -1
 96 reacher  0.30 3  2
 96 cube     0.30 3  1
192 two-room 0.30 3  3
192 push-t   0.15 2 -0.5
192 reacher  0.30 3 -0.5
192 cube     0.20 3  1
384 two-room 0.20 2  3
384 push-t   0.09 1 -0.5
384 reacher  0.20 2  1
384 cube     0.15 2  0
"""


def test_every_row_of_the_papers_table_is_a_preset():
    rows = [line.split() for line in PAPER_ROWS.strip().splitlines()]
    assert len(rows) == len(SELECTED) == 12
    for width, task, weight, multiplier, degree in rows:
        config = preset(f"{task}-{width}")
        assert config.task == task
        assert config.model.latent_dim == int(width)
        assert config.objective.method == "alewm"
        assert config.objective.regularizer_weight == float(weight)
        assert config.training.optim.selector_multiplier == float(multiplier)
        assert config.model.prior_degree == float(degree)


def test_what_all_paper_presets_share():
    for task, width in SELECTED:
        config = preset(f"{task}-{width}")
        training, objective = config.training, config.objective
        assert (training.seed, training.batch_size, training.num_epochs, training.num_steps) == (3072, 128, 10, None)
        assert (training.optim.learning_rate, training.optim.weight_decay) == (5e-5, 1e-3)
        assert (training.optim.clip_norm, training.optim.warmup_fraction) == (1.0, 0.01)
        assert (objective.num_projections, objective.temperature) == (1024, 0.5)
        assert config.model.action_dim == (25 if task == "cube" else 10)
        assert config.model.capacities == CAPACITIES[width]
        assert config.model.encoder.hidden_dim == (384 if width == 384 else 192)


def test_lewm_is_there_at_every_width_of_its_grid():
    for (task, block), latent_dim in [(row, k) for row in SELECTED for k in CAPACITIES[row[1]]]:
        config = preset(f"{task}-{block}-lewm-{latent_dim}")
        assert (config.objective.method, config.objective.regularizer_weight) == ("lewm", 0.09)
        assert config.model.latent_dim == latent_dim
        assert config.model.encoder == preset(f"{task}-{block}").model.encoder
    # One set of narrow models serves both blocks of the small encoder.
    assert preset("two-room-96-lewm-32") == preset("two-room-192-lewm-32")
    assert len(preset_names()) == 2 + 1 + 12 * 3 + 4 * (5 + 8 + 11)


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("two-room-192-lewm-192", 18_034_478),
        ("two-room-192-lewm-32", 17_385_134),
        ("cube-192-lewm-192", 18_034_628),
        ("push-t-384-lewm-384", 49_610_222),
        ("two-room-192", 18_034_478 + 1_781_384),
        ("two-room-96", 17_659_694 + 1_780_805),
        ("two-room-384", 49_610_222 + 4_740_491),
    ],
)
def test_presets_have_the_published_sizes(name, total):
    with torch.device("meta"):
        model = WorldModel(preset(name).model)
    assert sum(parameter.numel() for parameter in model.parameters()) == total


def test_every_preset_is_consistent_and_survives_json():
    for name in preset_names():
        config = preset(name)
        Objective(config.objective, config.model)
        assert from_dict(RunConfig, to_dict(config)) == config


def test_the_tiny_pair_differs_in_the_method_only():
    alewm, lewm = preset("two-room-tiny"), preset("two-room-tiny-lewm")
    assert lewm.model.latent_dim == alewm.model.latent_dim
    assert lewm.model.encoder == alewm.model.encoder
    assert lewm.training.num_steps == alewm.training.num_steps
    assert max(alewm.model.capacities[:-1]) <= alewm.model.latent_dim // 2


def test_the_model_of_two_data_sets_has_what_both_tasks_share_and_the_paper_s_first_q():
    config = preset("reacher+two-room-192")
    assert list(config.data_sets) == ["reacher", "two-room"]
    assert config.model.latent_dim == 192
    for task in config.data_sets:
        assert config.objective == preset(f"{task}-192").objective
        assert config.training == preset(f"{task}-192").training
        assert config.model.action_dim == preset(f"{task}-192").model.action_dim
    assert polynomial_prior(8, config.model.prior_degree)[-1].item() == pytest.approx(0.837, abs=5e-4)


def test_an_unknown_preset_proposes_the_nearest():
    with pytest.raises(InputError, match=r"Unknown task or preset 'tworoom-192'\. Did you mean 'two-room-192'\?"):
        preset("tworoom-192")


def test_a_preset_is_a_function_of_task_width_and_method():
    assert make_preset("two-room") == preset("two-room-192")
    assert make_preset("two-room", 192, "lewm", 32) == preset("two-room-192-lewm-32")
    assert make_preset("two-room", "tiny", "lewm") == preset("two-room-tiny-lewm")
    assert make_preset("cube", 384, "nested-dropout") == preset("cube-384-nested-dropout")
    assert make_preset("push-t", "tiny").model.action_dim == 10
    assert make_preset("two-room", 192, "lewm", 48) == preset("two-room-192-lewm-48")
    with pytest.raises(InputError, match="is for LeWM"):
        make_preset("two-room", 192, "alewm", 32)


@pytest.mark.parametrize("name", preset_names())
def test_the_flags_that_are_listed_ask_for_the_preset(name):
    task, *flags = preset_flags(name).split()
    options = dict(zip(flags[::2], flags[1::2], strict=True))
    latent = int(options["--latent"]) if "--latent" in options else None
    assert resolve_preset(task, options["--width"], options.get("--method"), latent) == name


def test_words_that_ask_for_no_preset_are_refused():
    assert resolve_preset("two-room") == "two-room-192"
    assert resolve_preset("push-t", "tiny") == "push-t-tiny"
    assert preset("push-t-tiny") == make_preset("push-t", "tiny")
    with pytest.raises(InputError, match="names a width and a method already"):
        resolve_preset("two-room-192", "96")
    with pytest.raises(InputError, match="two-room"):
        resolve_preset("two-rom")


@pytest.mark.parametrize("width", ["tiny", "192"])
def test_a_latent_that_is_asked_for_is_the_latent_that_is_trained(width):
    name = resolve_preset("two-room", width, "lewm", 8)
    assert preset(name) == make_preset("two-room", width, "lewm", 8)
    assert preset(name).model.latent_dim == 8
