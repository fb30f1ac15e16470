"""Pages that need nothing besides themselves: style for light and dark, tables that sort, pictures inside the file."""

import json
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple, TypeAlias

from sumpool.training.style import SORT, STYLE


class Number(NamedTuple):
    """A number as it is written, with what belongs under it; its column is sorted by the value."""

    value: float
    text: str
    detail: str = ""


Cell: TypeAlias = str | Number
Row: TypeAlias = Mapping[str, Cell]


def page(title: str, sections: Iterable[str]) -> str:
    """The whole page; the sections are HTML already, the title is text."""
    body = "\n".join(sections)
    script = f"<script>{SORT}</script>\n" if '<table class="sortable">' in body else ""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
<main>
<h1>{escape(title)}</h1>
{body}
</main>
{script}</html>
"""


def table(rows: Sequence[Row], caption: str = "", sortable: bool = True, apart: Collection[str] = ()) -> str:
    """Rows of one form as a table that scrolls by itself where it is too wide; columns `apart` look different.

    >>> "<td>GAP</td>" in table([{"method": "GAP", "map@r": Number(0.25, "25.0")}])
    True
    """
    columns = list(rows[0])
    numbers = {name for name in columns if any(isinstance(row[name], Number) for row in rows)}
    kinds = {name: " ".join(["number"] * (name in numbers) + ["apart"] * (name in apart)) for name in columns}
    head = "".join(_head(name, kinds[name], sortable) for name in columns)
    lines = "".join(f"<tr>{''.join(_cell(row[name], kinds[name]) for name in columns)}</tr>\n" for row in rows)
    start = '<table class="sortable">' if sortable else "<table>"
    title = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure>{title}<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption or "table")}">'
        f"{start}<thead><tr>{head}</tr></thead>\n<tbody>{lines}</tbody></table></div></figure>"
    )


def figure(picture: bytes | str, caption: str, alt: str = "") -> str:
    """A PNG or JPEG, or an SVG as text, with its caption; `alt` describes a PNG or JPEG to those who cannot see it."""
    shown = picture if isinstance(picture, str) else image(picture, alt or caption)
    return f"<figure>{shown}<figcaption>{escape(caption)}</figcaption></figure>"


def image(picture: bytes, alt: str) -> str:
    """A PNG or JPEG inside the page."""
    kind = "png" if picture.startswith(b"\x89PNG") else "jpeg"
    return f'<img src="data:image/{kind};base64,{b64encode(picture).decode()}" alt="{escape(alt)}">'


def _head(name: str, kind: str, sortable: bool) -> str:
    text = f'<button type="button">{escape(name)}</button>' if sortable else escape(name)
    return f'<th scope="col"{_class(kind)}>{text}</th>'


def _cell(cell: Cell, kind: str) -> str:
    if isinstance(cell, str):
        return f"<td{_class(kind)}>{escape(cell)}</td>"
    detail = f"<small>{escape(cell.detail)}</small>" if cell.detail else ""
    return f'<td{_class(kind)} data-value="{json.dumps(cell.value)}">{escape(cell.text)}{detail}</td>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
