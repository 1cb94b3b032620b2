"""HTML elements of a report; all content from a run is escaped here."""

import base64
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from alewm.files import write_text


def data_uri(content: bytes, media_type: str) -> str:
    """The content as an address that needs no other file."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def figure(svg: bytes, caption: str, *, titled: bool = False, curves: Mapping[str, Any] | None = None) -> str:
    """A drawing with its caption; one that is `titled` needs no caption below it.

    The values of `curves`, which is what `theme.plotted` says of them, show under the pointer.
    """
    text = escape(caption)
    below = "" if titled else f"<figcaption>{text}</figcaption>"
    data = "" if curves is None else f' data-curves="{escape(json.dumps(curves, separators=(",", ":")))}"'
    return f'<figure{data}><img src="{data_uri(svg, "image/svg+xml")}" alt="{text}">{below}</figure>'


@dataclass(frozen=True)
class FilmSheet:
    """Frames of one episode on a sheet, row by row."""

    name: str
    """Whose it is."""
    color: int
    """The index of its run, which has a colour."""
    sheet: bytes
    """WebP."""
    num_frames: int
    columns: int
    size: tuple[int, int]
    """Width and height of a frame."""


def player(title: str, films: Sequence[FilmSheet]) -> str:
    """Films side by side, with one pause button and one scrubber."""
    shown = "".join(
        f'<div><p class="name"><span class="dot" style="background:var(--run-{each.color % 6})"></span>'
        f'{escape(each.name)}</p><canvas width="{each.size[0]}" height="{each.size[1]}" '
        f'data-frames="{each.num_frames}" data-columns="{each.columns}" '
        f'data-sheet="{data_uri(each.sheet, "image/webp")}"></canvas></div>'
        for each in films
    )
    last = max(each.num_frames for each in films) - 1
    return (
        f'<div class="player"><div class="films">{shown}</div><div class="bar"><button type="button">Pause</button>'
        f'<input type="range" min="0" max="{last}" value="0" aria-label="step of {escape(title)}">'
        f'<output>step 0 of {last}</output></div><p class="muted">{escape(title)}</p></div>'
    )


def frames_table(head: Sequence[str], rows: Sequence[tuple[str, bytes]], *, cell: int) -> str:
    """Strips of frames, each a PNG of as many frames as `head` has names, shown `cell` pixels wide each."""
    top = "".join(f'<th style="width:{cell}px">{escape(name)}</th>' for name in head)
    width = cell * len(head)
    body = "".join(
        f'<tr><td>{escape(name)}</td><td colspan="{len(head)}"><img width="{width}" src="{data_uri(png, "image/png")}" '
        f'alt="{escape(name)}"></td></tr>'
        for name, png in rows
    )
    return (
        f'<div class="scroll"><table class="frames"><thead><tr><th></th>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def film(gif: bytes, caption: str) -> str:
    """An animation with its caption."""
    text = escape(caption)
    source = data_uri(gif, "image/gif")
    return f'<figure><img class="film" src="{source}" alt="{text}"><figcaption>{text}</figcaption></figure>'


def grid(pieces: Iterable[str]) -> str:
    """Pieces side by side, as many as fit."""
    return f'<div class="grid">{"".join(pieces)}</div>'


def tiles(values: Sequence[tuple[str, str]]) -> str:
    """Large numbers with labels."""
    inner = "".join(f'<div class="tile"><b>{escape(v)}</b><span>{escape(k)}</span></div>' for k, v in values)
    return f'<div class="tiles">{inner}</div>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    words: bool = False,
    best: Collection[tuple[int, int]] = (),
) -> str:
    """A table that scrolls by itself where the page is narrow.

    `words` aligns every column left; the cells at the (row, column) of `best` are bold.
    """
    header = "".join(f"<th>{escape(str(cell))}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(_cells(row, words, index, best))}</tr>" for index, row in enumerate(rows))
    kind = ' class="words"' if words else ""
    top = f"<thead><tr>{header}</tr></thead>" if head else ""
    return f'<div class="scroll"><table{kind}>{top}<tbody>{body}</tbody></table></div>'


def section(title: str, *content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(content)}</section>"


def found(text: str) -> str:
    """The first sentence: what was found."""
    return f'<p class="found">{escape(text)}</p>'


def paragraph(text: str) -> str:
    """A remark in small grey type."""
    return f'<p class="muted">{escape(text)}</p>'


def folded(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """Names and values that open on demand."""
    return f"<details><summary>{escape(title)}</summary>{table((), rows, words=True)}</details>"


def write_page(folder: Path, title: str, subtitle: str, *content: str) -> Path:
    """`folder/index.html`, the whole document: one file, no network. An earlier page is replaced in one step."""
    path = folder / "index.html"
    style, script = ((files("alewm.report") / name).read_text(encoding="utf-8") for name in ("style.css", "page.js"))
    write_text(
        path,
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="muted">{escape(subtitle)}</p>{"".join(content)}</main>'
        f"<script>{script}</script></body></html>\n",
    )
    return path


def _cells(row: Sequence[Any], words: bool, row_index: int, best: Collection[tuple[int, int]]) -> Iterator[str]:
    for index, cell in enumerate(row):
        text = escape(str(cell))
        if words and index == 0:  # dotted names may break where a reader would pause
            text = text.replace(".", ".<wbr>").replace("_", "_<wbr>")
        text = text.replace("\n", "<br>")
        yield f"<td><b>{text}</b></td>" if (row_index, index) in best else f"<td>{text}</td>"
