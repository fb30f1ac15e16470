"""Convex hulls of classes in the plane and how much they overlap."""

from itertools import pairwise

import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.retrieval.arrays import Labels, encode


def hull_overlap(points: Tensor, labels: Labels) -> Tensor:
    """Area of the intersection over area of the union of every two classes' convex hulls, (C,C), from points (N,2).

    Rows and columns are in ascending order of the labels. A hull without area overlaps nothing but itself.

    >>> square = torch.tensor([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    >>> hull_overlap(torch.cat([square, square + 1]), [0] * 4 + [1] * 4)[0, 1] == 1 / 7
    tensor(True)
    """
    codes = encode(labels)[0]
    if points.shape != (len(codes), 2) or not bool(points.isfinite().all()):
        raise InputError(f"hulls need finite points (N,2) and N labels, got {tuple(points.shape)} and {len(codes)}")
    hulls = [convex_hull(points[codes == code]) for code in range(int(codes.max()) + 1)]
    areas = [polygon_area(hull) for hull in hulls]
    overlap = torch.eye(len(hulls), dtype=torch.float64)
    for i in range(len(hulls)):
        for j in range(i):
            common = polygon_area(clip(hulls[i], hulls[j])) if areas[i] and areas[j] else 0.0
            overlap[i, j] = overlap[j, i] = common / (areas[i] + areas[j] - common) if common else 0.0
    return overlap


Point = tuple[float, float]


def _turn(a: Point, b: Point, c: Point) -> float:
    """Twice the signed area of a triangle: positive if a → b → c turns left."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def convex_hull(points: Tensor) -> list[Point]:
    """Corners of the hull, counter-clockwise (Andrew's monotone chain)."""
    ordered = sorted({(float(x), float(y)) for x, y in points.double().tolist()})
    if len(ordered) < 3:
        return ordered
    halves = []
    for side in (ordered, ordered[::-1]):
        chain: list[Point] = []
        for point in side:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], point) <= 0:
                chain.pop()
            chain.append(point)
        halves.append(chain[:-1])
    return halves[0] + halves[1]


def polygon_area(corners: list[Point]) -> float:
    """Area of a convex polygon (shoelace formula)."""
    return sum(_turn(corners[0], a, b) for a, b in pairwise(corners[1:])) / 2 if corners else 0.0


def clip(subject: list[Point], window: list[Point]) -> list[Point]:
    """Intersection of two convex polygons (Sutherland and Hodgman 1974): cut along every edge of the window."""
    for a, b in zip(window, window[1:] + window[:1], strict=True):
        kept: list[Point] = []
        for p, q in zip(subject, subject[1:] + subject[:1], strict=True):
            side_p, side_q = _turn(a, b, p), _turn(a, b, q)
            if side_p >= 0:
                kept.append(p)
            if side_p * side_q < 0:
                t = side_p / (side_p - side_q)
                kept.append((p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])))
        subject = kept
    return subject
