"""Pieces of the explorer's page: bars, curves and frames as HTML, everything inside it and nothing fetched."""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from alewm.evaluation.success import EpisodeRecord
from alewm.explorer.session import Attempt

COLORS = ("#0b62a4", "#c2410c")
"""Of the first and the second run."""
REACHED, MISSED = "#15803d", "#b91c1c"

STYLE = """
.alewm { color: var(--body-text-color); font-size: 14px; }
.alewm svg { display: block; width: 100%; height: auto; color: var(--body-text-color); }
.alewm .frames { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 8px; margin: 8px 0; }
.alewm .frames img, .alewm .strip img { width: 100%; display: block; image-rendering: pixelated; border-radius: 6px; }
.alewm .strip { display: flex; gap: 3px; margin: 6px 0 10px; }
.alewm .strip div { flex: 1 1 0; min-width: 0; }
.alewm .small { font-size: 12px; opacity: .75; margin: 0 0 2px; }
.alewm .outcome { font-size: 16px; font-weight: 600; margin: 4px 0; }
.alewm .bars { display: flex; align-items: flex-end; gap: 6px; height: 74px; margin-bottom: 10px; }
.alewm .charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 4px 14px; }
.alewm .bars div { flex: 1; max-width: 70px; text-align: center; font-size: 12px; }
.alewm .bars i { display: block; border-radius: 3px 3px 0 0; }
footer { display: none !important; }
"""


def image(frame: np.ndarray) -> str:
    """The frame as an address that needs no other file."""
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def bars(q: Mapping[int, float], chosen: int | None, color: str) -> str:
    """q over the support; the capacity that plans is filled."""
    cells = "".join(
        f'<div>{value:.2f}<i style="height:{4 + 36 * value:.0f}px;background:{color};'
        f'opacity:{1 if k == chosen else 0.3}"></i>{k}</div>'
        for k, value in q.items()
    )
    return (
        f'<p class="small">q(k): how likely each capacity is; the filled one plans</p><div class="bars">{cells}</div>'
    )


def curves(title: str, lines: Sequence[tuple[str, Sequence[float], str]], mark: int | float | None = None) -> str:
    """Lines over their index, with the largest and the last value written beside them."""
    longest = max((len(values) for _, values, _ in lines), default=0)
    top = max((max(values) for _, values, _ in lines if values), default=0.0) or 1.0
    width, height, left, bottom = 320.0, 96.0, 40.0, 14.0

    def place(index: int | float, value: int | float) -> str:
        x = left + (width - left - 6) * index / max(1, longest - 1)
        return f"{x:.1f},{6 + (height - bottom - 6) * (1 - value / top):.1f}"

    parts = [
        f'<polyline fill="none" stroke="{color}" stroke-width="1.6" '
        f'points="{" ".join(place(i, v) for i, v in enumerate(values))}"/>'
        for _, values, color in lines
        if len(values) > 1
    ]
    if mark is not None and longest > 1:
        x = place(min(mark, longest - 1), 0).partition(",")[0]
        parts.append(f'<line x1="{x}" x2="{x}" y1="6" y2="{height - bottom}" stroke="currentColor" opacity=".5"/>')
    text = 'font-size="9" fill="currentColor"'
    names = " · ".join(
        f'<span style="color:{color}">{escape(name)}</span> {values[-1]:.3g}' for name, values, color in lines if values
    )
    floor = height - bottom
    axis = f'<line x1="{left}" x2="{width - 6}" y1="{floor}" y2="{floor}" stroke="currentColor" opacity=".3"/>'
    return (
        f'<div><p class="small">{escape(title)}: {names}</p><svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}">{axis}{"".join(parts)}<text x="{left - 4}" y="12" text-anchor="end" {text}>'
        f'{top:.2g}</text><text x="{left - 4}" y="{height - bottom}" text-anchor="end" {text}>0</text>'
        f'<text x="{width - 6}" y="{height - 3}" text-anchor="end" {text}>{max(0, longest - 1)}</text></svg></div>'
    )


def attempt_view(name: str, color: str, attempt: Attempt, goal: np.ndarray, step: int | None = None) -> str:
    """One run's column: outcome, frames at `step`, the imagined strip, the search and the distances."""
    last = len(attempt.frames) - 1
    at = last if step is None else min(step, last)
    block = min(round(at / attempt.blocks_per_frame), len(attempt.imagined) - 1)
    outcome_color = REACHED if attempt.success else MISSED
    outcome = (
        f'<p class="outcome" style="color:{outcome_color}">{escape(attempt.note)}</p>'
        if attempt.is_over and attempt.note
        else f'<p class="outcome">{"Acting" if last else "Searching"} ...</p>'
    )
    imagined = (
        f'<div><p class="small">imagined</p><img src="{image(attempt.imagined[block])}" alt="imagined frame"></div>'
        if attempt.imagined
        else '<div><p class="small">imagined: no decoder</p></div>'
    )
    strip = "".join(
        f'<div><p class="small">{i * attempt.blocks_per_frame}</p><img src="{image(frame)}" alt=""></div>'
        for i, frame in enumerate(attempt.imagined)
    )
    plans = [
        (f"plan {i}" if len(attempt.elite_costs) > 1 else "elites", costs, color)
        for i, costs in enumerate(attempt.elite_costs, 1)
    ]
    spreads = [("", values, "#6e6e73") for values in attempt.spreads]
    return (
        f'<div class="alewm"><p class="small">{escape(name)}, capacity {attempt.capacity}</p>{outcome}'
        f"{bars(attempt.q, attempt.capacity, color)}"
        f'<div class="frames"><div><p class="small">real, step {at}</p><img src="{image(attempt.frames[at])}" '
        f'alt="real frame"></div>{imagined}<div><p class="small">goal</p><img src="{image(goal)}" alt="goal"></div>'
        "</div>"
        + (f'<p class="small">what the plan imagines, by step</p><div class="strip">{strip}</div>' if strip else "")
        + '<div class="charts">'
        + curves("distance to the goal, real", [("", attempt.distances, color)], mark=at)
        + curves("distance to the goal, imagined, by block", [("", attempt.imagined_costs, color)])
        + curves("elite cost by iteration", plans)
        + curves("spread of the candidates by iteration", spreads)
        + "</div></div>"
    )


class DistancePlot:
    """Distance to the goal of every evaluated episode, as a picture that knows which line is at a place."""

    def __init__(self, records: Sequence[EpisodeRecord], title: str) -> None:
        self.records = records
        figure = Figure(figsize=(6.4, 2.6), dpi=100, layout="constrained")
        axes = figure.add_subplot()
        for record in records:
            color = REACHED if record.success else MISSED
            axes.plot(record.distances, color=color, linewidth=0.7, alpha=0.5 if record.success else 0.9)
        axes.set(title=title, xlabel="environment steps", ylabel="distance to the goal", ylim=(0, None))
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        self.picture = np.array(Image.open(buffer).convert("RGB"))
        self._to_pixels = axes.transData

    def nearest(self, x: int | float, y: int | float) -> int:
        """The record whose line is nearest to a pixel of the picture."""
        here = np.array([x, self.picture.shape[0] - y])
        off = []
        for record in self.records:
            points = self._to_pixels.transform(np.stack([np.arange(len(record.distances)), record.distances], 1))
            off.append(np.square(points - here).sum(1).min())
        return int(np.argmin(off))
