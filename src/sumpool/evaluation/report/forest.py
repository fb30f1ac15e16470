"""Forest plot: differences with their intervals, one below the other, as SVG drawn by hand."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from sumpool.evaluation.report.sheets import signed, small

WIDTH, MARGIN, ROW, AXIS = 360, 14, 38, 22
LONGEST = 34  # characters of a name that leave room for the numbers
CLEAR = 46  # pixels that two labels of the axis need


class Difference(NamedTuple):
    """A method minus the reference."""

    name: str
    mean: float
    interval: tuple[float, float]
    p: float
    """Adjusted for the number of comparisons; below 0.05 the dot is filled."""


def forest(title: str, differences: Sequence[Difference]) -> str:
    """A figure with a line at zero: an interval that does not cross it excludes that the methods are equal."""
    low, high = min(0.0, *(one.interval[0] for one in differences)), max(0.0, *(one.interval[1] for one in differences))
    span = high - low or 1.0
    height = ROW * len(differences) + AXIS
    rows = "".join(_row(one, number * ROW, low, span) for number, one in enumerate(differences))
    zero = _place(0.0, low, span)
    told = "; ".join(f"{one.name} {_numbers(one)}" for one in differences)
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(f"{title}: {told}")}">'
        f'<line class="zero" x1="{zero:.1f}" x2="{zero:.1f}" y1="0" y2="{height - AXIS + 4}"/>'
        f"{rows}{_axis(low, high, height)}</svg></figure>"
    )


def _row(one: Difference, top: float, low: float, span: float) -> str:
    start, middle, end = (_place(value, low, span) for value in (one.interval[0], one.mean, one.interval[1]))
    kind = "" if one.p < 0.05 else ' class="open"'
    name = one.name if len(one.name) <= LONGEST else one.name[: LONGEST - 1] + "…"
    line = top + 27
    return (
        f"<g><title>{escape(f'{one.name}: {_numbers(one)}')}</title>"
        f'<text class="name" x="0" y="{top + 14}">{escape(name)}</text>'
        f'<text x="{WIDTH}" y="{top + 14}" text-anchor="end">{signed(one.mean)}, p {_p(one.p)}</text>'
        f'<line class="interval" x1="{start:.1f}" x2="{end:.1f}" y1="{line}" y2="{line}"/>'
        f'<circle{kind} cx="{middle:.1f}" cy="{line}" r="4.5"/></g>'
    )


def _axis(low: float, high: float, height: int) -> str:
    """Zero and the outermost ends, as far as there is room."""
    places = {value: _place(value, low, high - low or 1.0) for value in (low, high)}
    zero = _place(0.0, low, high - low or 1.0)
    labels = [(signed(value), place) for value, place in places.items() if abs(place - zero) > CLEAR]
    return "".join(
        f'<text x="{place:.1f}" y="{height - 4}" text-anchor="middle">{text}</text>'
        for text, place in [("0", zero), *((text, min(max(place, 20), WIDTH - 20)) for text, place in labels)]
    )


def _numbers(one: Difference) -> str:
    low, high = one.interval
    return f"{signed(one.mean)} [{signed(low)}, {signed(high)}], p {_p(one.p)}"


def _p(p: float) -> str:
    return small(p) if p < 0.001 else f"= {small(p)}"


def _place(value: float, low: float, span: float) -> float:
    return MARGIN + (WIDTH - 2 * MARGIN) * (value - low) / span
