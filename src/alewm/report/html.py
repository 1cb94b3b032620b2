"""The few HTML pieces a report is made of; everything that comes from a run is escaped here."""

import base64
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from alewm.files import write_text


def data_uri(content: bytes, media_type: str) -> str:
    """The content as an address that needs no other file."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def figure(svg: bytes, caption: str, *, titled: bool = False) -> str:
    """A drawing with its caption; one that is `titled` needs no caption below it."""
    text = escape(caption)
    below = "" if titled else f"<figcaption>{text}</figcaption>"
    return f'<figure><img src="{data_uri(svg, "image/svg+xml")}" alt="{text}">{below}</figure>'


def film(gif: bytes, caption: str) -> str:
    """An animation with its caption."""
    text = escape(caption)
    source = data_uri(gif, "image/gif")
    return f'<figure><img class="film" src="{source}" alt="{text}"><figcaption>{text}</figcaption></figure>'


def grid(pieces: Iterable[str]) -> str:
    """Pieces side by side, as many as fit."""
    return f'<div class="grid">{"".join(pieces)}</div>'


def tiles(values: Sequence[tuple[str, str]]) -> str:
    """Big numbers with what they are."""
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
    """A titled part of the page."""
    return f"<section><h2>{escape(title)}</h2>{''.join(content)}</section>"


def paragraph(text: str) -> str:
    """A sentence or two in a quiet voice."""
    return f'<p class="muted">{escape(text)}</p>'


def folded(title: str, values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    """Names and values that open on demand."""
    rows = values.items() if isinstance(values, Mapping) else values
    return f"<details><summary>{escape(title)}</summary>{table((), rows, words=True)}</details>"


def write_page(folder: Path, title: str, subtitle: str, *content: str) -> Path:
    """`folder/index.html`, the whole document: one file, no network. An earlier page is replaced in one step."""
    path, style = folder / "index.html", (files("alewm.report") / "style.css").read_text(encoding="utf-8")
    write_text(path, _page(title, subtitle, style, *content))
    return path


def _page(title: str, subtitle: str, style: str, *content: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="muted">{escape(subtitle)}</p>{"".join(content)}</main></body></html>\n'
    )


def _cells(row: Sequence[Any], words: bool, row_index: int, best: Collection[tuple[int, int]]) -> Iterator[str]:
    for index, cell in enumerate(row):
        text = escape(str(cell))
        if words and index == 0:  # dotted names may break where a reader would pause
            text = text.replace(".", ".<wbr>").replace("_", "_<wbr>")
        text = text.replace("\n", "<br>")
        yield f"<td><b>{text}</b></td>" if (row_index, index) in best else f"<td>{text}</td>"
