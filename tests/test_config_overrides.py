"""Fields of a configuration by their dotted path."""

import hashlib
import json
from pathlib import Path

import pytest

from alewm.config import changed_fields, from_dict, overridden, to_dict
from alewm.errors import InputError
from alewm.experiments.framework.run import config_key
from alewm.experiments.presets import preset, preset_names
from alewm.training.config import RunConfig

STORED = sorted(Path(__file__).parents[1].glob("results/*/*/config.json"))


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
        ("model.prior", "value", "model.prior must be one of ranks, values, smooth"),
        ("model.capacities", [8, "x"], "model.capacities must be"),
        ("training.num_steps", "many", "training.num_steps must be int | None"),
    ],
)
def test_what_does_not_fit_is_refused(path, value, message):
    with pytest.raises(InputError) as refusal:
        overridden(preset("two-room-tiny"), {path: value})
    assert message in str(refusal.value)


def test_a_field_that_came_later_counts_only_where_it_is_not_at_its_default():
    """Otherwise no run that was stored before it would be found again."""
    config = preset("two-room-192")
    assert "prior" not in to_dict(config)["model"]
    smooth = overridden(config, {"model.prior": "smooth"})
    assert to_dict(smooth)["model"]["prior"] == "smooth"
    assert from_dict(RunConfig, to_dict(smooth)) == smooth
    assert changed_fields(smooth, config) == {"model.prior": "smooth"}
    assert overridden(smooth, {"model.prior": "ranks"}) == config


def test_presets_have_the_hashes_under_which_runs_were_stored():
    """Of all presets together; a change here means that no stored run of a changed preset is reused."""
    keys = "".join(config_key(to_dict(preset(name))) for name in preset_names())
    assert hashlib.sha256(keys.encode()).hexdigest().startswith("948314b48f4dde70")


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.parent.name)
def test_stored_runs_are_found_by_their_configuration(path):
    stored = json.loads(path.read_text())
    config = from_dict(RunConfig, {name: value for name, value in stored.items() if name != "data"})
    assert config_key(to_dict(config)) == config_key(stored)
