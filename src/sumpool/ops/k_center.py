r"""Greedy k-center: pick points that cover a pool.

Given a pool S and an initial cover Q, repeat k times: take :math:`\arg\max_{x \in S} \min_{q \in Q} \lVert x-q \rVert`
and add it to Q. The covering radius :math:`\max_{x \in S} \min_{q \in Q} \lVert x-q \rVert` it reaches is at most twice
the smallest possible one (Gonzalez 1985).

Shape letters: … any batch dimensions, P points of the pool, Q points of the initial cover, D their dimension.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sumpool.errors import InputError


class KCenter(NamedTuple):
    """What the greedy picked and how well it covers the pool."""

    indices: Tensor
    """(…, k) rows of the pool, in the order they were picked."""
    radius: Tensor
    """(…,) covering radius of the pool by the initial cover and the picked points."""


@torch.no_grad()
def greedy_k_center(points: Tensor, k: int, cover: Tensor | None = None, mask: Tensor | None = None) -> KCenter:
    """Pick `k` of the `points` (…,P,D) by greedy k-center, in O(kP) distances, for all batch dimensions at once.

    `cover` (…,Q,D) is the initial cover; without one, the first valid point is the first pick. `mask` (…,P) is True
    for the points that belong to the pool; a pool with fewer than k of them repeats its points.

    >>> greedy_k_center(torch.tensor([[0.0], [1.0], [10.0], [11.0]]), k=3)
    KCenter(indices=tensor([0, 3, 1]), radius=tensor(1.))
    """
    _check(points, k, cover, mask)
    points = points.to(torch.promote_types(points.dtype, torch.float32))
    valid_P = points.new_ones(points.shape[:-1], dtype=torch.bool) if mask is None else mask
    points = points.masked_fill(~valid_P[..., None], 0)  # whatever padding holds, even NaN, is at no distance
    if cover is None or cover.shape[-2] == 0:
        gap_P = torch.full_like(points[..., 0], torch.inf)
    else:
        # Not by a matrix product, whose rounding would leave a distance between equal points.
        gaps_PQ = torch.cdist(points, cover.to(points.dtype), compute_mode="donot_use_mm_for_euclid_dist")
        gap_P = gaps_PQ.amin(-1)
    gap_P = gap_P.masked_fill(~valid_P, -1)
    picks = []
    for _ in range(k):
        pick = gap_P.argmax(-1, keepdim=True)
        picks.append(pick)
        chosen_1D = points.gather(-2, pick[..., None].expand(*pick.shape, points.shape[-1]))
        gap_P = torch.minimum(gap_P, torch.linalg.vector_norm(points - chosen_1D, dim=-1))
    return KCenter(torch.cat(picks, dim=-1), gap_P.amax(-1))


def _check(points: Tensor, k: int, cover: Tensor | None, mask: Tensor | None) -> None:
    if points.dim() < 2 or points.shape[-2] == 0 or k < 1:
        raise InputError(f"k-center needs at least one point and k ≥ 1, got points {tuple(points.shape)} and k = {k}")
    if cover is not None and (cover.shape[:-2] != points.shape[:-2] or cover.shape[-1] != points.shape[-1]):
        raise InputError(f"cover {tuple(cover.shape)} does not match points {tuple(points.shape)}")
    if mask is not None and (mask.dtype != torch.bool or mask.shape != points.shape[:-1]):
        raise InputError(f"mask must be boolean {tuple(points.shape[:-1])}, got {mask.dtype} {tuple(mask.shape)}")
    if mask is not None and not bool(mask.any(-1).all()):
        raise InputError("mask leaves a pool without points")
    finite_P = points.isfinite().all(-1)
    if not bool((finite_P if mask is None else finite_P | ~mask).all()):
        raise InputError("k-center got points with NaN or infinite coordinates")
