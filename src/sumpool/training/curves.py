"""Curves as SVG, drawn by hand so that a page needs nothing but itself."""

import math
from collections.abc import Callable, Sequence
from html import escape

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 56, 10, 10, 24
MOST = 400

Point = tuple[float, float]


def curve(title: str, points: Sequence[Point], mark: float | None = None) -> str:
    """A figure with one curve; `mark` is the x of a point to emphasise."""
    points = _thinned([(x, y) for x, y in points if math.isfinite(y)], mark)
    if not points:
        return ""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    across, up = _scale(xs, LEFT, WIDTH - RIGHT), _scale(ys, HEIGHT - BOTTOM, TOP)
    path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
    ends = {min(ys): up(min(ys)), max(ys): up(max(ys))}
    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>'
        f'<text x="{LEFT - 5}" y="{place + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        for value, place in ends.items()
    )
    steps = "".join(
        f'<text x="{across(x):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{x:g}</text>'
        for x, anchor in dict(zip((xs[0], xs[-1]), ("start", "end"), strict=True)).items()
    )
    dots = "".join(
        f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="{4 if x == mark else 1.5}">'
        f"<title>step {x:g}: {y:.5g}</title></circle>"
        for x, y in points
    )
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'{grid}{steps}<polyline points="{path}"/>{dots}</svg></figure>'
    )


def _thinned(points: list[Point], mark: float | None) -> list[Point]:
    """At most about `MOST` of the points, with the last and the marked one: more cannot be told apart."""
    stride = -(-len(points) // MOST)
    return [
        point
        for place, point in enumerate(points, start=1)
        if place % stride == 0 or place == len(points) or point[0] == mark
    ]


def _scale(values: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    """The linear map from the range of some values to a range of pixels; one value alone goes to the middle."""
    low, span = min(values), max(values) - min(values)
    return lambda value: start + (end - start) * ((value - low) / span if span else 0.5)
