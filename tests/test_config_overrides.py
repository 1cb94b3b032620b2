"""Fields of a configuration by their dotted path."""

import dataclasses
import hashlib
import math
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest

from alewm.config import changed_fields, from_dict, overridden, ranges_of, to_dict
from alewm.errors import InputError
from alewm.sweeps.library import config_key
from alewm.training.config import RunConfig
from alewm.training.presets import preset, preset_names
from alewm_lab.publishing.published import read_results

STORED = [run for scale in read_results(Path(__file__).parents[1] / "results").scales for run in scale.runs]


@pytest.mark.parametrize("name", preset_names()[::7])
def test_the_fields_that_differ_make_one_preset_of_another(name):
    base, other = preset("two-room-tiny"), preset(name)
    made = overridden(base, changed_fields(other, base))
    assert made == other
    assert to_dict(made) == to_dict(other)


def test_fields_that_must_fit_each_other_change_together():
    changed = overridden(preset("two-room-tiny"), {"model.latent_dim": 8, "model.capacities": [4, 8]})
    assert changed.model.support.capacities == (4, 8)


def test_an_integer_for_a_float_is_the_same_number():
    by_integer, by_float = (overridden(preset("two-room-tiny"), {"model.prior_degree": value}) for value in (2, 2.0))
    assert str(to_dict(by_integer)) == str(to_dict(by_float))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model.prior_degre", 1.0, "Did you mean 'prior_degree'"),
        ("model", 1.0, "names no single value"),
        ("task.name", "x", "names no single value"),
        ("model.prior_degree", "two", "must be float, got 'two'"),
        ("training.batch_size", True, "must be int, got True"),
        ("training.batch_size", 1.5, "must be int, got 1.5"),
        ("objective.method", "lewn", "one of lewm, alewm"),
        ("objective.directions", "prefix", "objective.directions must be one of sphere, prefixes"),
        ("model.capacities", [8, "x"], "model.capacities must be"),
        ("training.num_steps", "many", "training.num_steps must be int | None"),
    ],
)
def test_what_does_not_fit_is_refused(path, value, message):
    with pytest.raises(InputError) as refusal:
        overridden(preset("two-room-tiny"), {path: value})
    assert message in str(refusal.value)


SIZES = (
    "model.action_dim",
    "model.projector_dim",
    "model.encoder.image_size",
    "model.encoder.patch_size",
    "model.encoder.hidden_dim",
    "model.encoder.num_blocks",
    "model.encoder.num_heads",
    "model.encoder.mlp_dim",
    "model.predictor.num_blocks",
    "model.predictor.num_heads",
    "model.predictor.head_dim",
    "model.predictor.mlp_dim",
    "model.predictor.context_length",
    "model.selector.num_heads",
    "model.selector.mlp_dim",
    "objective.num_projections",
    "training.batch_size",
    "training.num_steps",
    "training.keep_checkpoints",
)
WEIGHTS = ("objective.regularizer_weight", "objective.prior_weight", "training.optim.weight_decay")
RATES = (
    "training.optim.learning_rate",
    "training.optim.selector_multiplier",
    "training.optim.clip_norm",
    "objective.temperature",
)
SHARES = ("training.optim.warmup_fraction", "training.optim.selector_delay", "model.predictor.dropout")


@pytest.mark.parametrize(
    ("path", "values", "rule"),
    [
        *((path, (0, -5), "must be at least 1") for path in SIZES),
        *((path, (-1, math.nan, math.inf), "must be finite and not negative") for path in WEIGHTS),
        *((path, (0, -1, math.nan, math.inf), "must be positive and finite") for path in RATES),
        *((path, (-0.1, 1, math.nan), "is a share in [0, 1)") for path in SHARES),
        ("model.prior_degree", (math.nan, -math.inf), "must be a finite number"),
        ("model.selector.num_blocks", (-1,), "must not be negative"),
        ("training.seed", (-1,), "must not be negative"),
        ("training.recalibration_batches", (-1,), "must not be negative"),
    ],
)
def test_numbers_outside_of_a_fields_range_are_refused_by_its_path(path, values, rule):
    for value in values:
        with pytest.raises(InputError) as refusal:
            overridden(preset("two-room-tiny"), {path: value})
        assert f"{path} {rule}, got {value}." in str(refusal.value)


def test_every_number_of_a_configuration_has_a_range():
    """A field without one takes numbers that fail in the middle of training, or train something else in silence."""

    def unbounded(kind):
        for name, hint in get_type_hints(kind).items():
            if dataclasses.is_dataclass(hint):
                yield from unbounded(hint)
            elif {int, float} & {hint, *get_args(hint)} and get_origin(hint) is not tuple:
                yield from () if name in ranges_of(kind) else (f"{kind.__name__}.{name}",)

    assert list(unbounded(RunConfig)) == []


def test_heads_of_a_selector_must_divide_the_width_where_there_is_a_selector():
    config = preset("two-room-tiny")
    with pytest.raises(InputError, match="selector's 5 heads do not divide the encoder's width"):
        overridden(config, {"model.selector.num_heads": 5})
    assert (
        overridden(config, {"model.selector.num_heads": 5, "model.has_selector": False}).model.selector.num_heads == 5
    )


def test_a_field_that_came_later_counts_only_where_it_is_not_at_its_default():
    """Otherwise no run that was stored before it would be found again."""
    config = preset("two-room-192")
    assert "directions" not in to_dict(config)["objective"]
    other = overridden(config, {"objective.directions": "prefixes"})
    assert to_dict(other)["objective"]["directions"] == "prefixes"
    assert from_dict(RunConfig, to_dict(other)) == other
    assert changed_fields(other, config) == {"objective.directions": "prefixes"}
    assert overridden(other, {"objective.directions": "sphere"}) == config


def test_presets_have_the_hashes_under_which_runs_were_stored():
    """Of all presets together; a change here means that no stored run of a changed preset is reused."""
    keys = "".join(config_key(to_dict(preset(name))) for name in preset_names())
    assert hashlib.sha256(keys.encode()).hexdigest().startswith("c67a7eafde759b8b")


@pytest.mark.parametrize("run", STORED, ids=lambda run: run.run.name)
def test_stored_runs_are_found_by_their_configuration(run):
    stored = run.config
    config = from_dict(RunConfig, {name: value for name, value in stored.items() if name != "data"})
    assert config_key(to_dict(config)) == config_key(stored)
