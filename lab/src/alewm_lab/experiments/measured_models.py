"""What is measured on trained models: the paper's propositions, and the true state in every prefix."""

from collections.abc import Callable, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alewm.capacity.support import survival
from alewm.evaluation.held_out import SAMPLE_SEED, EncodedWindows, Trained
from alewm.evaluation.probes import PROBES, fit_networks, fit_ridge
from alewm.evaluation.probes import measure as measure_probes
from alewm.evaluation.statistics import Spread
from alewm.model.world_model import WorldModel
from alewm.shapes import Float, Tensor
from alewm.tables import Cell, Row, Table
from alewm.theme import Draw, Theme
from alewm.training.validation import masked_variance
from alewm_lab.experiments.experiment import Experiment, ExperimentFigure, MeasurementWork, Outcome, Recipe, Results
from alewm_lab.experiments.request import TASK_TITLES, Request
from alewm_lab.oscillator.measures import distance_from_survival
from alewm_lab.presentation import capacity_axis, panel_grid


def encoded_windows(trained: Trained, part: str, most: int) -> EncodedWindows:
    """At most `most` windows of the episodes of `part`, drawn without repetition."""
    episodes = trained.splits.part(part)
    index = trained.store.windows(episodes, trained.shape)
    generator = np.random.default_rng([SAMPLE_SEED, len(episodes)])
    return trained.windows_at(index.starts(np.sort(generator.permutation(len(index))[:most])), trained.shape)


@torch.no_grad()
def capacity_probabilities(trained: Trained, windows: EncodedWindows) -> Float[Tensor, "B C"]:
    """q(k | w) of every window, on the CPU."""
    model, device = trained.model, trained.device
    parts = [model.capacity_logits(part.to(device)).cpu() for part in torch.split(windows.features, 512)]
    return torch.cat(parts).float().softmax(-1)


def variance_beside_survival(trained: Trained, windows: EncodedWindows, q: Float[Tensor, "B C"]) -> dict[str, Any]:
    """Per coordinate: variance masked and unmasked, and the survival probabilities of prior and selector."""
    support, prior = trained.model.support, trained.model.log_prior.exp().cpu()
    return {
        "masked_variance": masked_variance(windows.latents, q, support).tolist(),
        "raw_variance": windows.latents.flatten(0, 1).var(0, correction=0).tolist(),
        "prior_survival": survival(prior, support).tolist(),
        "q_survival": survival(q.mean(0), support).tolist(),
    }


Measured = Mapping[str, Mapping[str, Any]]
"""What was measured, by title of the panel."""


def variance_panels(found: Measured) -> Draw:
    """Masked variance of each coordinate beside the survival probabilities of prior and selector; raw, where given."""

    def panel(axes: Axes, theme: Theme, each: Mapping[str, Any]) -> None:
        x = range(1, len(each["masked_variance"]) + 1)
        if "raw_variance" in each:
            axes.plot(x, each["raw_variance"], color=theme.color(0), linewidth=1, label="variance, unmasked")
        axes.plot(x, each["masked_variance"], color=theme.color(1), linewidth=1.2, label="variance, masked")
        axes.step(x, each["prior_survival"], where="mid", color=theme.text, linewidth=1.2, label="survival, prior")
        axes.step(
            x, each["q_survival"], where="mid", color=theme.muted, linestyle="--", linewidth=1, label="survival, q"
        )
        axes.set(xlabel="latent coordinate", ylim=(0, None))

    return _panels(found, panel)


def losses_by_capacity(found: Measured) -> Draw:
    """Prediction error against the prefix: the model's own predictor and separately fitted probes."""

    def panel(axes: Axes, theme: Theme, each: Mapping[str, Any]) -> None:
        places = range(len(each["capacities"]))
        series = {"model": each["losses"], "probe, linear": each["risks"]["linear"]}
        series["probe, network"] = each["risks"]["network"]
        for index, (label, values) in enumerate(series.items()):
            shares = [value / each["total_variance"] for value in values]
            style = "-" if label == "model" else "--"
            axes.plot(places, shares, style, marker="o", ms=3, color=theme.color((1, 0, 2)[index]), label=label)
        axes.set_xticks(places, [str(k) for k in each["capacities"]], fontsize=7)
        axes.set(xlabel="prefix k", ylabel="share of variance", ylim=(0, None))

    return _panels(found, panel)


def _panels(found: Measured, panel: Callable[[Axes, Theme, Mapping[str, Any]], None]) -> Draw:
    def draw(theme: Theme) -> Figure:
        figure, grid = panel_grid(len(found), 3, panel=(3.0, 2.4), margin=(1.4, 0.0))
        for axes, (title, each) in zip(grid, found.items(), strict=True):
            panel(axes, theme, each)
            axes.set_title(title)
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right center")
        return figure

    return draw


def build_theory(request: Request) -> Experiment:
    """The selected models of one width, measured on windows of validation episodes."""
    (width,) = request.widths(192)
    runs = tuple(chain.from_iterable(request.alewm_by_task(TASK_TITLES, width).values()))
    options = (
        ("num_train", 300 if request.is_smoke else 20_000),
        ("num_windows", 100 if request.is_smoke else 5_000),
        ("num_steps", 20 if request.is_smoke else 3_000),
    )
    measured = {run: MeasurementWork(run, "theory", measure_theory, options, request.command("theory")) for run in runs}

    def outcome(results: Results) -> Outcome:
        found = {f"{TASK_TITLES[run.task]}, {run.seed}": results.measured(measured[run]) for run in runs}
        sources = {title: results.measuring_commands([measured[run]]) for run, title in zip(runs, found, strict=True)}
        every = results.measuring_commands(measured.values())
        variance = request.caption(
            "Variance of each coordinate under the mask beside the survival probability that exact matching would "
            "give it (proposition 1 and its corollary), and the variance of the unmasked coordinate, which must not "
            "be smaller under exact matching. Windows of validation episodes."
        )
        losses = request.caption(
            "One-step prediction error per capacity: of the model's own predictor, and of linear and network probes "
            "fitted separately per prefix (estimates of R_k from above), as a share of the next latent's variance; "
            "at 0 only actions are seen. Windows of validation episodes."
        )
        drawings = (
            ExperimentFigure("variance", variance, variance_panels(found), every),
            ExperimentFigure("losses", losses, losses_by_capacity(found), every),
        )
        tables = (_gains_table(request, found, sources), _order_table(request, found, sources))
        return Outcome(tables, drawings)

    return Experiment("theory", request, runs, outcome, tuple(measured.values()))


@torch.no_grad()
def forced_losses(model: WorldModel, windows: EncodedWindows, masks: Float[Tensor, "n D"]) -> Float[Tensor, "B n"]:
    """Squared error of each window's predictions, summed over coordinates, under every row of `masks`."""
    device = masks.device
    columns = []
    for mask in masks:
        parts = []
        for z, a in zip(torch.split(windows.latents, 512), torch.split(windows.actions, 512), strict=True):
            z, a = z.to(device), a.to(device)
            error = (model.predict(z[:, :-1] * mask, a).float() - z[:, 1:]).square()
            parts.append(error.sum(-1).mean(-1).cpu())
        columns.append(torch.cat(parts))
    return torch.stack(columns, 1)


def measure_theory(folder: Path, data: Path, device: torch.device, options: Mapping[str, Any]) -> dict[str, Any]:
    """Variances, forced losses and their gains, and risks of separately fitted probes, as plain numbers."""
    with Trained.open(folder, data, device) as trained:
        model, support = trained.model, trained.model.support
        windows = encoded_windows(trained, "validation", options["num_windows"])
        fitted_on = encoded_windows(trained, "train", options["num_train"])
        q, prior = capacity_probabilities(trained, windows), model.log_prior.exp().cpu()
        variances = variance_beside_survival(trained, windows, q)
        ks = (0, *support.capacities)
        coordinates = torch.arange(1, support.latent_dim + 1)
        masks = torch.stack([(coordinates <= k).float() for k in ks]).to(device)
        losses = forced_losses(model, windows, masks)
    gains = losses[:, :-1] - losses[:, 1:]
    at_block = q.flip(-1).cumsum(-1).flip(-1)
    expected = (q * losses[:, 1:]).sum(-1)
    identity = (expected - (losses[:, 0] - (at_block * gains).sum(-1))).abs().max() / losses.mean()
    total = windows.latents[:, -1].var(0, correction=0).sum().item()
    prior_at_block = prior.flip(-1).cumsum(-1).flip(-1).tolist()
    risks = _risks(fitted_on, windows, ks, options["num_steps"], device)
    return {
        "capacities": list(ks),
        "total_variance": total,
        **variances,
        "losses": losses.mean(0).tolist(),
        "gains": gains.mean(0).tolist(),
        "negative_share": (gains < 0).float().mean(0).tolist(),
        "identity_error": identity.item(),
        "risks": risks,
        "orders": {probe: order_of_gains(risk, prior_at_block) for probe, risk in risks.items()},
    }


def order_of_gains(risks: list[float], survival_at_block: list[float]) -> dict[str, Any]:
    """How the gains Δ_c of consecutive prefixes are ordered, and what the order costs under the prior.

    `distance` is the expected risk above that of the best order of the same gains, as a share of what lies between the
    best and the worst: 0 is the best order. This takes the proposition's assumption that gains can be moved.
    """
    gains = [before - after for before, after in pairwise(risks)]

    def expected(ordered: list[float]) -> float:
        return risks[0] - sum(rho * gain for rho, gain in zip(survival_at_block, ordered, strict=True))

    learned, best = expected(gains), expected(sorted(gains, reverse=True))
    worst = expected(sorted(gains))
    return {
        "gains": gains,
        "is_monotone": all(gain >= 0 for gain in gains),
        "inversions": sum(gains[i] < gains[j] for i in range(len(gains)) for j in range(i + 1, len(gains))),
        "distance": (learned - best) / (worst - best) if worst > best else 0.0,
    }


def _risks(
    fitted_on: EncodedWindows, windows: EncodedWindows, ks: tuple[int, ...], num_steps: int, device: torch.device
) -> dict[str, list[float]]:
    """Error of predicting the last latent from the first k coordinates of those before it, and all actions."""
    x, y = _history(fitted_on), fitted_on.latents[:, -1]
    test_x, truth = _history(windows), windows.latents[:, -1]
    _, num_frames, latent_dim = windows.latents.shape
    in_prefix = torch.arange(latent_dim) < torch.tensor(ks)[:, None]
    actions = torch.ones(len(ks), windows.actions[0].numel(), dtype=torch.bool)
    seen = torch.cat([in_prefix.repeat(1, num_frames - 1), actions], 1)
    generator = torch.Generator().manual_seed(SAMPLE_SEED)
    predicted = {
        "linear": [fit_ridge(x[:, columns], y)(test_x[:, columns]) for columns in seen],
        "network": list(fit_networks(x, y, seen, generator, device=device, num_steps=num_steps)(test_x)),
    }
    return {probe: [(each - truth).square().sum(-1).mean().item() for each in predicted[probe]] for probe in PROBES}


def _history(windows: EncodedWindows) -> Float[Tensor, "B I"]:
    """All latents but the last, and the actions between them, in one row per window."""
    return torch.cat([windows.latents[:, :-1].flatten(1), windows.actions.flatten(1)], 1)


def _gains_table(request: Request, found: Measured, sources: Mapping[str, tuple[str, ...]]) -> Table:
    ks = next(iter(found.values()))["capacities"]
    rows: list[Row] = []
    for title, each in found.items():
        shares = [gain / each["total_variance"] for gain in each["gains"]]
        rows.append([title, "δ, share of variance", *(Cell(f"{s:+.4f}", commands=sources[title]) for s in shares)])
        negative = [f"{100 * share:.0f} %" for share in each["negative_share"]]
        rows.append([title, "windows with δ < 0", *(Cell(text, commands=sources[title]) for text in negative)])
    head = ["task and seed", "", *(f"{a} to {b}" for a, b in pairwise(ks))]
    worst = max(each["identity_error"] for each in found.values())
    text = (
        "Gain δ of each block of coordinates for the model's own predictor: how much the forced-capacity loss "
        "falls when the block is added. Gains of a shared finite predictor may be negative. The telescoping "
        f"identity of proposition 3 holds to {worst:.1e} of the loss."
    )
    return Table.of("gains", request.caption(text), head, rows)


def _order_table(request: Request, found: Measured, sources: Mapping[str, tuple[str, ...]]) -> Table:
    rows: list[Row] = []
    for title, each in found.items():
        deviation = f"{distance_from_survival(each['masked_variance'], each['prior_survival']):.3f}"
        for probe in PROBES:
            order = each["orders"][probe]
            cells = [
                "yes" if order["is_monotone"] else "no",
                str(order["inversions"]),
                f"{order['distance']:.3f}",
                deviation,
            ]
            rows.append([title, probe, *(Cell(text, commands=sources[title]) for text in cells)])
    head = ["task and seed", "probe", "R_k monotone", "inversions of Δ", "distance from best order", "|variance - ρ|"]
    text = (
        "Whether risks of separately fitted probes fall with the prefix; how many pairs of blocks have the larger gain "
        "later; how far the learned order is from the best (0) towards the worst (1) order of the same gains under the "
        "prior; and the mean deviation of masked variance from survival."
    )
    return Table.of("order", request.caption(text), head, rows)


THEORY = Recipe(
    "theory", "the propositions measured: masked variance, gains of blocks, risks per prefix, order", build_theory
)


Curves = dict[tuple[str, str, str], dict[int, Spread]]
"""R² by capacity, for each task, method and probe."""


def build_probes(request: Request) -> Experiment:
    """ALeWM and LeWM of one width; probes fitted on training frames, scored on frames of test episodes."""
    (width,) = request.widths(192)
    groups = request.both_methods(TASK_TITLES, width)
    runs = tuple(run for group in groups.values() for run in group)
    ks = request.alewm(runs[0].task, width, request.seeds[0]).config.model.capacities
    options = (
        ("capacities", ks),
        ("num_train", 400 if request.is_smoke else 20_000),
        ("num_test", 100 if request.is_smoke else 5_000),
        ("num_steps", 20 if request.is_smoke else 3_000),
    )
    measured = {run: MeasurementWork(run, "probes", measure_probes, options, request.command("probes")) for run in runs}

    def outcome(results: Results) -> Outcome:
        curves: Curves = {}
        rows: list[Row] = []
        for (task, method), group in groups.items():
            found = [results.measured(measured[run]) for run in group]
            commands = results.measuring_commands(measured[run] for run in group)
            for probe in PROBES:
                spread = {k: Spread.of([each[probe][str(k)]["mean"] for each in found]) for k in ks}
                curves[task, method, probe] = spread
                cells = [Cell(spread[k].shown(digits=3), commands=commands) for k in ks]
                rows.append([TASK_TITLES[task], method, probe, *cells])
        head = ["task", "model", "probe", *(f"k = {k}" for k in ks)]
        text = (
            "R² (mean over what one frame shows of the state, ± SEM over seeds) from the first k coordinates of "
            "the latent of one frame; probes are fitted per prefix on training frames and scored on frames of test "
            "episodes."
        )
        table = Table.of("probes", request.caption(text), head, rows)
        commands = results.training_commands(runs)
        return Outcome((table,), (ExperimentFigure("probes", request.caption(text), _probe_panels(curves), commands),))

    return Experiment("probes", request, runs, outcome, tuple(measured.values()))


def _probe_panels(curves: Curves) -> Draw:
    tasks = list(dict.fromkeys(task for task, _, _ in curves))

    def draw(theme: Theme) -> Figure:
        figure, panels = panel_grid(len(tasks), panel=(2.9, 2.8), margin=(0.6, 0.0), sharey=True)
        for axes, task in zip(panels, tasks, strict=True):
            for (where, method, probe), spread in curves.items():
                if where != task:
                    continue
                color = theme.color(0 if method == "LeWM" else 1)
                style, ks = "-" if probe == "linear" else "--", list(spread)
                means, errors = [s.mean for s in spread.values()], [s.sem or 0.0 for s in spread.values()]
                axes.errorbar(
                    ks, means, errors, color=color, linestyle=style, marker="o", ms=3, label=f"{method}, {probe}"
                )
            capacity_axis(axes, ks)
            axes.set(title=TASK_TITLES[task], xlabel="prefix k")
        panels[0].set_ylabel("R² of the true state")
        panels[-1].legend(fontsize=7)
        return figure

    return draw


STATE_PROBES = Recipe("probes", "linear and network recovery of the true state from each prefix", build_probes)
