"""`alewm report`: one self-contained page for a run, or for several side by side."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageSequence

from alewm.errors import InputError
from alewm.evaluation.animations import FILM_HEIGHT, replayed, side_by_side
from alewm.evaluation.decoder import DECODER, NUM_EXAMPLES
from alewm.evaluation.evaluate_run import interval_in_words
from alewm.evaluation.imagination import HOLDING_STILL, IMAGINATION, imagine_run
from alewm.files import write_bytes
from alewm.model.checkpoint_files import checkpoints_in
from alewm.report import figures, html
from alewm.report.gather import Run, flatten, read_runs, with_evaluations
from alewm.theme import Draw, Series, plotted

MOST_FILMS = 12
"""Films shown per run."""
SHEET_COLUMNS = 8
CELL = 84
"""Pixels that a frame among others is wide on the page."""


def write_report(run_folders: Sequence[Path], out: Path, *, data_path: Path | None = None) -> Path:
    """Write `out/index.html` and `out/figures/*.svg` from the run folders; the path of the page.

    What a run imagines is measured first where its data file is at hand, at `data_path` if it has moved, and kept in
    the run folder. The page holds its figures and films itself. An existing page is replaced once the new one is
    complete.
    """
    read_runs(list(run_folders))  # refuses what is no run before anything is measured
    notes = {folder.resolve(): note for folder in run_folders if (note := _imagine(folder, data_path))}
    runs = read_runs(with_evaluations(run_folders))
    shelf = _Shelf(out / "figures")
    content = [
        part
        for part in (
            html.found(_found(runs)),
            _headline(runs),
            _films(runs),
            _imagination(runs, shelf, notes),
            _prefixes(runs),
            _capacities(runs, shelf),
            _success(runs, shelf),
            _variance(runs, shelf),
            _curves(runs, shelf),
            _differences(runs),
            _details(runs),
        )
        if part
    ]
    shelf.write()
    return html.write_page(out, " · ".join(run.name for run in runs), _subtitle(runs), *content)


_SUCCESS_TERMS = (
    'Presolved: pairs whose start is at the goal already; "not presolved" is success over the others. Random and '
    "nothing: success of uniform random actions and of no action on the same pairs."
)
_VARIANCE_TERMS = (
    "Masked variance: the variance of a latent coordinate when capacities drawn from q set it to zero. Prior survival: "
    "the probability that the prior leaves it active. MixSIGReg makes them equal."
)


class _Shelf:
    """Figures of one report: embedded in the page and kept as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, bytes] = {}

    def figure(
        self,
        name: str,
        draw: Draw,
        caption: str,
        *,
        curves: Sequence[tuple[str, int, Series]] = (),
        titled: bool = False,
    ) -> str:
        svg, places = plotted(draw, curves)
        self.files[f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.svg"] = svg
        return html.figure(svg, caption, titled=titled, curves=places if curves else None)

    def write(self) -> None:
        for name, content in self.files.items():
            write_bytes(self.folder / name, content)


def _imagine(folder: Path, data_path: Path | None) -> str:
    """Measures what a run imagines unless that is known; why it could not be, or nothing."""
    if not checkpoints_in(folder / "checkpoints"):
        return ""
    try:
        imagine_run(folder, data_path=data_path)
    except InputError as error:
        return str(error)
    return ""


def _found(runs: Sequence[Run]) -> str:
    """One sentence: how many goals were reached with how many dimensions, or else how far imagination holds."""
    trained = [run for run in runs if not run.is_evaluation] or list(runs)
    names = [run.method for run in trained]
    parts = []
    for run in trained:
        result = run.result
        if result.get("success_rate") is None:
            continue
        name = run.method if names.count(run.method) == 1 else run.name
        reached = f"{round(result['success_rate'] * result['episodes'])} of {result['episodes']} goals"
        width = (result.get("support") or [None])[-1]
        used = f" using {_number(result.get('mean_capacity'))} of {width} dimensions" if width else ""
        parts.append(f"{name} reached {reached}{used}")
    if parts:
        return f"{'; '.join(parts)}."
    told = []
    for run in trained:
        if errors := run.imagination.get("errors"):
            own, still = (errors[name]["mean"] for name in (f"k = {run.imagination['capacity']}", HOLDING_STILL))
            told.append(
                f"{run.name} imagines {len(own)} blocks ahead with an error of {_percent(own[-1])} of the latent's "
                f"variance, using {run.imagination['capacity']} dimensions; holding still: {_percent(still[-1])}."
            )
    return " ".join(told) or "No goals were planned to yet, and nothing was imagined."


def _imagination(runs: Sequence[Run], shelf: _Shelf, notes: Mapping[Path, str]) -> str:
    parts: list[str] = []
    for run in runs:
        if note := notes.get(run.folder.resolve()):
            parts.append(html.paragraph(f"{run.name}: not measured. {note}"))
        if not (found := run.imagination):
            continue
        own = f"k = {found['capacity']}"
        draw = figures.imagination_errors(found["errors"], own, run.name, run.color)
        curves = [
            (name, run.color, (list(map(float, range(1, len(band["mean"]) + 1))), band["mean"]))
            for name, band in found["errors"].items()
        ]
        caption = (
            f"{run.name}: mean square error of imagined latents, as a share of the variance of the coordinates "
            f"compared; {found['windows']} windows of {found['split']} episodes. {own} is the run's own capacity. "
            f"Bands hold 80 % of the windows. Holding still predicts no change."
        )
        parts += [shelf.figure(f"imagination-{run.name}", draw, caption, curves=curves), _strips(run)]
    if not parts:
        return ""
    note = (
        "From one held-out frame the model imagines what follows under the recorded actions, without looking again. "
        "A block is as many environment steps as the frame skip."
    )
    return html.section("Imagined beside real", html.paragraph(note), *parts)


def _strips(run: Run) -> str:
    strips, skip = run.imagination["strips"], run.imagination["frame_skip"]
    rows, count = strips["rows"], strips["count"]
    bands = _cut(run.picture(f"{IMAGINATION}/frames.png"), len(rows) * count)
    head = [f"{ahead * skip} steps" if ahead else "now" for ahead in strips["columns"]]
    how = (
        "Imagined frames are drawn by the run's decoder, which may paint what is likely where the latent says nothing."
        if strips["drawn_by"] == "decoder"
        else "No decoder was fitted (alewm decode RUN), so the training frame with the nearest latent stands for an "
        "imagined one."
    )
    tables = [
        html.frames_table(head, list(zip(rows, bands[i * len(rows) : (i + 1) * len(rows)], strict=True)), cell=CELL)
        for i in range(count)
    ]
    return html.paragraph(f"{run.name}: {how}") + "".join(tables)


def _prefixes(runs: Sequence[Run]) -> str:
    """What each capacity keeps of held-out frames, of runs with a decoder."""
    parts = []
    for run in runs:
        if not run.decoder:
            continue
        bands = _cut(run.picture(f"{DECODER}/examples.png"), NUM_EXAMPLES)
        head = ["recorded", *(f"k = {k}" for k in run.decoder["config"]["capacities"])]
        rows = [(f"frame {i}", band) for i, band in enumerate(bands, 1)]
        errors = ", ".join(f"{_percent(error)} at k = {k}" for k, error in run.decoder["validation_error"].items())
        parts.append(html.paragraph(f"{run.name}: error / variance of the pixels, held-out frames: {errors}."))
        parts.append(html.frames_table(head, rows, cell=CELL))
    if not parts:
        return ""
    note = (
        "Held-out frames decoded from the first k coordinates of their latent. A detail that is sharp and right is in "
        "the prefix. A detail that is blurred or missing may still be there: a decoder draws the average of the frames "
        "that share a prefix, and what never changes it draws from memory."
    )
    return html.section("What each prefix keeps", html.paragraph(note), *parts)


def _cut(png: bytes, count: int) -> list[bytes]:
    """`count` bands of equal height, as PNG."""
    bands = []
    with Image.open(io.BytesIO(png)) as picture:
        height = picture.height // count
        for i in range(count):
            buffer = io.BytesIO()
            picture.crop((0, i * height, picture.width, (i + 1) * height)).save(buffer, format="PNG", optimize=True)
            bands.append(buffer.getvalue())
    return bands


def _subtitle(runs: Sequence[Run]) -> str:
    steps = [int(run.metrics[-1]["step"]) for run in runs if run.metrics]
    commands = {str(run.provenance["command"]) for run in runs if "command" in run.provenance}
    parts = [f"{len(runs)} runs" if len(runs) > 1 else str(runs[0].folder)]
    if steps:
        parts.append(f"{max(steps):,} update steps")
    if len(commands) == 1:
        parts.append(commands.pop())
    parts += dict.fromkeys(run.data_note for run in runs if run.data_note)
    return " · ".join(parts)


def _headline(runs: Sequence[Run]) -> str:
    if len(runs) > 1 or "success_rate" not in runs[0].result:
        return ""
    result = runs[0].result
    shown = [
        (f"success (95 % interval: {_interval(result)})", _percent(result["success_rate"])),
        ("success where not solved at the start", _percent(result.get("success_rate_nontrivial"))),
        ("uniform random, same pairs", _percent(result.get("random_success_rate"))),
        ("doing nothing, same pairs", _percent(result.get("zero_success_rate"))),
        ("recorded actions, same pairs", _percent(result.get("replay_success_rate"))),
        ("mean planning capacity", _number(result.get("mean_capacity"))),
        ("episodes", _number(result.get("episodes"))),
    ]
    return html.tiles([(label, value) for label, value in shown if value != "–"])


def _success(runs: Sequence[Run], shelf: _Shelf) -> str:
    evaluated = [run for run in runs if run.result.get("success_rate") is not None]
    if not evaluated:
        return html.section(
            "Success", html.paragraph("Not evaluated yet: alewm evaluate writes the result into the run folder.")
        )
    head = ("run", "success", "95 % interval", "not presolved", "random", "nothing", "presolved", "episodes", "seconds")
    rows = [
        (
            run.name,
            _percent(run.result["success_rate"]),
            _interval(run.result),
            *(
                _percent(run.result.get(key))
                for key in (
                    "success_rate_nontrivial",
                    "random_success_rate",
                    "zero_success_rate",
                    "presolved_share",
                )
            ),
            _number(run.result.get("episodes")),
            _number(run.result.get("seconds")),
        )
        for run in evaluated
    ]
    plots = [
        shelf.figure(
            "success", figures.success_rates(evaluated), "Success on the same held-out pairs, and what chance gives."
        )
    ]
    for run in runs:
        if run.records:
            draw = figures.distance_over_time(run.records, run.name, run.color)
            caption = f"Distance to the goal, episode by episode: {run.name}."
            plots.append(shelf.figure(f"distance-{run.name}", draw, caption))
    return html.section("Success", html.table(head, rows), html.paragraph(_SUCCESS_TERMS), html.grid(plots))


def _capacities(runs: Sequence[Run], shelf: _Shelf) -> str:
    chosen = [run for run in runs if run.result.get("capacity_counts")]
    head = ("run", "mean capacity", "of width", "q shift", "q spread", "chosen (k: episodes)")
    rows = [
        (
            run.name,
            _number(run.result.get("mean_capacity")),
            _number((run.result.get("support") or [None])[-1]),
            _number(run.result.get("q_shift")),
            _number(run.result.get("q_spread")),
            ", ".join(f"{k}: {count}" for k, count in run.result["capacity_counts"].items() if count),
        )
        for run in chosen
    ]
    plots = []
    if chosen:
        caption = "Episodes planned with each capacity (bars) and the selector's mean probability (dots)."
        plots.append(shelf.figure("capacities", figures.chosen_capacities(chosen), caption))
    for run in runs:
        for group, curves in run.capacity_dynamics().items():
            if len(curves) == 1:
                continue  # nothing was chosen
            name = " · ".join(part for part in (run.name, group) if part)
            caption = f"Mean probability of each capacity while training: {name}."
            plots.append(shelf.figure(f"dynamics-{name}", figures.capacity_dynamics(curves, name), caption))
    if not plots:
        return ""
    note = "q shift: total-variation distance of the mean q from its prior. q spread: mean distance of q from its mean."
    return html.section("Capacity", html.table(head, rows) + html.paragraph(note) if rows else "", html.grid(plots))


def _variance(runs: Sequence[Run], shelf: _Shelf) -> str:
    plots = []
    for run in runs:
        variance, survival = run.latest("masked_variance"), run.latest("prior_survival")
        if isinstance(variance, list) and isinstance(survival, list):
            draw = figures.masked_variance(variance, survival, run.name, run.color)
            caption = f"Variance of each masked coordinate beside the prior's survival probability: {run.name}."
            plots.append(shelf.figure(f"variance-{run.name}", draw, caption))
    title = "Masked variance against survival"
    return html.section(title, html.paragraph(_VARIANCE_TERMS), html.grid(plots)) if plots else ""


def _curves(runs: Sequence[Run], shelf: _Shelf) -> str:
    curves: dict[str, dict[int, Series]] = {}
    for index, run in enumerate(runs):
        for name, series in run.scalars().items():
            # q has a figure of its own; time that has passed is a line, and windows per second say more.
            if "q" not in name.split("/")[:-1] and name != "seconds":
                curves.setdefault(name, {})[index] = series
    # Losses first: they are what one looks for.
    ordered = sorted(curves, key=lambda name: ("loss" not in name, name))
    names = [run.name for run in runs]
    plots = [
        shelf.figure(
            f"metric-{name}",
            figures.metric_curves(curves[name], names, _words(name)),
            _words(name),
            curves=[(names[run] if len(names) > 1 else "", run, series) for run, series in curves[name].items()],
            titled=True,
        )
        for name in ordered
    ]
    return html.section("Curves", html.grid(plots)) if plots else ""


def _films(runs: Sequence[Run]) -> str:
    """Films of the same pair side by side; where a run has no film of a pair, its kept actions are replayed."""
    by_pair: dict[str, dict[int, list[Image.Image]]] = {}
    outcomes: dict[tuple[str, int], str] = {}
    for index, run in enumerate(runs):
        for path in run.animations[:MOST_FILMS]:
            if match := _FILM.fullmatch(path.stem):
                by_pair.setdefault(match["pair"], {})[index] = _frames_of(path)
                outcomes[match["pair"], index] = f"{match['outcome']}, k = {match['capacity']}"
    if sum(not run.is_evaluation for run in runs) > 1:
        for index, run in enumerate(runs):
            _replay_missing(run, index, by_pair, outcomes)
    players = []
    for pair, films in by_pair.items():
        shown = [
            _film(f"{runs[index].name}: {outcomes[pair, index]}", index, frames)
            for index, frames in sorted(films.items())
        ]
        players.append(html.player(f"{_words(pair)}: the episode on the left, its goal on the right", shown))
    return html.section("Films", *players) if players else ""


_FILM = re.compile(r"(?P<pair>episode-\d+(?:-from-\d+)?)-(?P<outcome>reached|missed)-k(?P<capacity>\d+)")


def _replay_missing(
    run: Run, index: int, by_pair: dict[str, dict[int, list[Image.Image]]], outcomes: dict[tuple[str, int], str]
) -> None:
    named = {f"episode-{record.episode:05d}": place for place, record in enumerate(run.records)}
    missing = [pair for pair, films in by_pair.items() if index not in films and pair in named]
    if not missing or run.is_evaluation:
        return
    try:
        films = replayed(run.folder, [named[pair] for pair in missing])
    except InputError:  # without pairs, data or simulator the film is left out
        return
    for pair, (frames, goal) in zip(missing, films, strict=True):
        record = run.records[named[pair]]
        by_pair[pair][index] = [side_by_side([frame, goal], FILM_HEIGHT) for frame in frames]
        outcomes[pair, index] = f"{'reached' if record.success else 'missed'}, k = {record.capacity}"


def _frames_of(path: Path) -> list[Image.Image]:
    with Image.open(path) as gif:
        return [frame.convert("RGB") for frame in ImageSequence.Iterator(gif)]


def _film(name: str, color: int, frames: Sequence[Image.Image]) -> html.FilmSheet:
    """All frames on one sheet."""
    width, height = frames[0].size
    columns = min(SHEET_COLUMNS, len(frames))
    sheet = Image.new("RGB", (columns * width, -(-len(frames) // columns) * height))
    for i, frame in enumerate(frames):
        sheet.paste(frame, ((i % columns) * width, i // columns * height))
    buffer = io.BytesIO()
    sheet.save(buffer, format="WEBP", quality=85, method=4)
    return html.FilmSheet(name, color, buffer.getvalue(), len(frames), columns, (width, height))


def _differences(runs: Sequence[Run]) -> str:
    if len(runs) < 2:
        return ""
    configs = [dict(flatten(run.config)) for run in runs]
    names = dict.fromkeys(name for config in configs for name in config)
    values = {name: [config.get(name, "–") for config in configs] for name in names}
    rows = [(name, *found) for name, found in values.items() if any(each != found[0] for each in found)]
    body = html.table(("field", *(run.name for run in runs)), rows, words=True) if rows else ""
    return html.section("What differs", body or html.paragraph("The runs have the same configuration."))


def _details(runs: Sequence[Run]) -> str:
    parts = []
    for run in runs:
        parts.append(html.folded(f"{run.name}: configuration", flatten(run.config)))
        if run.provenance:
            parts.append(html.folded(f"{run.name}: provenance", flatten(run.provenance)))
        if run.result:
            shown = [(k, v) for k, v in flatten(run.result) if not (isinstance(v, list) and len(v) > 16)]
            parts.append(html.folded(f"{run.name}: result", shown))
    return html.section("Configuration and provenance", *parts)


def _percent(rate: Any) -> str:
    return f"{100 * rate:.1f} %" if isinstance(rate, (int, float)) else "–"


def _interval(result: Mapping[str, Any]) -> str:
    return interval_in_words(result) if "interval" in result else ""


def _number(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3g}" if isinstance(value, float) else "–"


def _words(name: str) -> str:
    return name.replace("/", " · ").replace("_", " ").replace("-", " ")
