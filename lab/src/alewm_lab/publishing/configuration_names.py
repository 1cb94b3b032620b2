"""What configurations are called in tables and figures, and the columns that tell them apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from alewm_lab.publishing.published import Configuration
from alewm_lab.table_formats import NONE

TITLES = {"alewm": "ALeWM", "lewm": "LeWM", "alewm-sigreg": "ALeWM, SIGReg", "nested-dropout": "nested dropout"}
"""Methods as tables call them."""

COLUMNS = ("method", "d", "λ", "s_q", "α")
"""Heads of the columns that tell configurations apart."""

_BACKBONES = {(192, 12): "ViT-Tiny", (384, 12): "ViT-Small"}


def backbone(config: Mapping[str, Any]) -> str:
    """What the encoder is called, by its width and depth."""
    encoder = config["model"]["encoder"]
    named = _BACKBONES.get((encoder["hidden_dim"], encoder["num_blocks"]))
    return named or f"ViT of width {encoder['hidden_dim']} and {encoder['num_blocks']} blocks"


def method_names(configurations: Sequence[Configuration]) -> list[str]:
    """What each configuration is called: its method, and in what else it differs from what the other columns say."""
    named = [method_of(configuration) for configuration in configurations]
    shown = [(name, *_columns(each)) for name, each in zip(named, configurations, strict=True)]
    for index, row in enumerate(shown):
        alike = [each for each, other in zip(configurations, shown, strict=True) if other == row]
        if len(alike) > 1:
            fields = [each.runs[0].fields for each in alike]
            differing = [name for name in fields[0] if any(other.get(name) != fields[0][name] for other in fields)]
            own = configurations[index].runs[0].fields
            named[index] += "".join(f", {name.rpartition('.')[2]} {own.get(name)}" for name in differing)
    return named


def full_names(configurations: Sequence[Configuration]) -> list[str]:
    """The same with the width, and with λ and α where they tell configurations apart."""
    named = []
    for name, each in zip(method_names(configurations), configurations, strict=True):
        own = _columns(each)
        alike = [_columns(o) for o in configurations if (method_of(o), _columns(o)[0]) == (method_of(each), own[0])]
        telling = [
            f"{symbol} = {own[place]}"
            for symbol, place in (("λ", 1), ("s_q", 2), ("α", 3))
            if len({columns[place] for columns in alike}) > 1
        ]
        named.append(", ".join([name, f"d = {own[0]}", *telling]))
    return named


def named_columns(configurations: Sequence[Configuration]) -> list[list[str]]:
    """The cells of each below `COLUMNS`."""
    return [[name, *_columns(each)] for name, each in zip(method_names(configurations), configurations, strict=True)]


def method_of(configuration: Configuration) -> str:
    """Its method, with what was changed about it."""
    objective = configuration.config["objective"]
    prior = configuration.config["model"].get("prior", "ranks")
    target, is_nested = objective.get("prediction_target", "full"), objective["method"] == "nested-dropout"
    delay = configuration.config["training"]["optim"].get("selector_delay", 0.0)
    notes = {
        f"prior of {prior}": prior != "ranks",
        "q frozen at the prior": objective.get("freezes_selector"),
        f"q delayed by {100 * delay:g} %": delay,
        "exact marginalisation": objective.get("marginalises_capacity"),
        f"KL {objective.get('prior_weight', 0):g} to the prior": objective.get("prior_weight"),
        "marginal": objective["method"] == "alewm-sigreg" and objective.get("masked_sigreg") == "marginal",
        "directions in prefixes": objective.get("directions", "sphere") == "prefixes",
        "prefix as target": target == "prefix" and not is_nested,
        "full target": target == "full" and is_nested,
        "target detached beyond the prefix": target == "detached",
    }
    return ", ".join([TITLES[objective["method"]], *(note for note, is_true in notes.items() if is_true)])


def _columns(configuration: Configuration) -> list[str]:
    """d, λ, s_q and α; the last two where there is a selector or a prior."""
    config = configuration.config
    model, method = config["model"], config["objective"]["method"]
    s_q = f"{config['training']['optim']['selector_multiplier']:g}" if model["has_selector"] else NONE
    alpha = NONE if method == "lewm" else f"{model['prior_degree']:g}".replace("-", "−")
    return [str(model["latent_dim"]), f"{config['objective']['regularizer_weight']:g}", s_q, alpha]
