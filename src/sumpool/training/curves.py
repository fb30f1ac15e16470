"""Curves as SVG, drawn by hand so that a page needs nothing but itself."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 56, 10, 10, 24
MOST = 400

Point = tuple[float, float]
Scale = Callable[[float], float]


class Line(NamedTuple):
    """One curve; `mark` is the x of a point to emphasise, `name` is shown at its points."""

    points: Sequence[Point]
    mark: float | None = None
    name: str = ""


def curve(title: str, points: Sequence[Point], mark: float | None = None) -> str:
    """A figure with one curve."""
    return curves(title, [Line(points, mark)])


def curves(title: str, lines: Sequence[Line]) -> str:
    """A figure with several curves on common axes; nothing if no point is finite."""
    most = MOST // max(len(lines), 1)
    lines = [line._replace(points=_thinned(line, most)) for line in lines]
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    xs, ys = ([point[axis] for line in lines for point in line.points] for axis in (0, 1))
    across, up = _scale(xs, LEFT, WIDTH - RIGHT), _scale(ys, HEIGHT - BOTTOM, TOP)
    drawn = "".join(_drawn(line, across, up) for line in lines)
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{_axes(xs, ys, across, up)}{drawn}</svg></figure>"
    )


def _axes(xs: Sequence[float], ys: Sequence[float], across: Scale, up: Scale) -> str:
    """Lines at the smallest and largest value, and the first and last step."""
    ends = {min(ys): up(min(ys)), max(ys): up(max(ys))}
    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>'
        f'<text x="{LEFT - 5}" y="{place + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        for value, place in ends.items()
    )
    steps = "".join(
        f'<text x="{across(x):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{x:g}</text>'
        for x, anchor in {min(xs): "start", max(xs): "end"}.items()
    )
    return grid + steps


def _drawn(line: Line, across: Scale, up: Scale) -> str:
    path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line.points)
    name = f"{escape(line.name)}, " if line.name else ""
    dots = "".join(
        f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="{4 if x == line.mark else 1.5}">'
        f"<title>{name}step {x:g}: {y:.5g}</title></circle>"
        for x, y in line.points
    )
    return f'<polyline points="{path}"/>{dots}'


def _thinned(line: Line, most: int) -> list[Point]:
    """At most about `most` of the finite points, with the last and the marked one: more cannot be told apart."""
    points = [(x, y) for x, y in line.points if math.isfinite(y)]
    stride = -(-len(points) // most)
    return [
        point
        for place, point in enumerate(points, start=1)
        if place % stride == 0 or place == len(points) or point[0] == line.mark
    ]


def _scale(values: Sequence[float], start: float, end: float) -> Scale:
    """The linear map from the range of some values to a range of pixels; one value alone goes to the middle."""
    low, span = min(values), max(values) - min(values)
    return lambda value: start + (end - start) * ((value - low) / span if span else 0.5)
