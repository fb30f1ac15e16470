"""What the embedding space looks like: spread of the classes, their overlap in the plane, and the spectrum."""

from typing import NamedTuple

import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.ops.k_center import greedy_k_center
from sumpool.retrieval.arrays import Embeddings, Labels, blocks, checked, encode, norms


class ClassGeometry(NamedTuple):
    """Distances of every class, (C,) float64, in ascending order of the labels; NaN where a class has none."""

    covering_radius: Tensor
    """Mean over k = 1..n of the radius with which k greedily chosen samples cover the class's n samples."""
    intra: Tensor
    """Mean distance between two samples of the class."""
    inter: Tensor
    """Mean distance from the class's mean to those of the other classes."""
    nearest: Tensor
    """Smallest of those distances."""


class Spectrum(NamedTuple):
    """How many directions the embeddings use."""

    shares: Tensor
    """(D,) variance along the principal directions, descending, as shares of the total."""
    effective_rank: float
    """exp of the entropy of the shares: 1 for a line, D when all directions are used alike."""


def class_geometry(embeddings: Embeddings, labels: Labels) -> ClassGeometry:
    r"""Covering radius, intra- and inter-class distances (Euclidean; normalise first for those on the sphere).

    The covering radius of a class S of n samples is :math:`\frac1n \sum_{k=1}^n \max_{x \in S} \min_{q \in Q_k}
    \lVert x - q \rVert`, with :math:`Q_k` the first k picks of greedy k-center.

    >>> x = torch.tensor([[0.0, 0.0], [2.0, 0.0], [10.0, 0.0]])
    >>> geometry = class_geometry(x, ["a", "a", "b"])
    >>> geometry.covering_radius.tolist(), geometry.inter.tolist()
    ([1.0, 0.0], [9.0, 9.0])
    """
    points, codes = _points(embeddings), encode(labels)[0]
    if len(codes) != len(points):
        raise InputError(f"one label per embedding expected, got {len(codes)} for {len(points)}")
    classes = [points[codes == code] for code in range(int(codes.max()) + 1)]
    spreads = [_spread(members) for members in classes]
    means = torch.stack([members.mean(0) for members in classes])
    between = torch.cdist(means, means)
    between.fill_diagonal_(torch.nan)
    nearest = between.nan_to_num(torch.inf).amin(1)
    radius, intra = torch.tensor(spreads, dtype=torch.float64).unbind(1)
    return ClassGeometry(radius, intra, between.nanmean(1), nearest.where(nearest < torch.inf, torch.nan))


def _spread(members: Tensor) -> tuple[float, float]:
    """Covering radius and mean distance between two members of a class."""
    count = len(members)
    picks = greedy_k_center(members, count).indices
    # The next pick is the farthest sample, so its distance to the picks before it is the radius they reach.
    distances = torch.cdist(members[picks], members[picks])
    radii = [float(distances[k, :k].min()) for k in range(1, count)]
    pairs = count * (count - 1)
    return sum(radii) / count, float(distances.sum() / pairs) if pairs else torch.nan


def spectrum(embeddings: Embeddings) -> Spectrum:
    r"""Principal variances as shares :math:`\lambda_i / \sum \lambda` and the effective rank :math:`\exp H(\lambda)`.

    >>> spectrum(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).effective_rank
    2.0
    """
    points = _points(embeddings)
    variances = torch.linalg.svdvals(points - points.mean(0)).square()
    variances = torch.cat([variances, variances.new_zeros(points.shape[1] - len(variances))])
    shares = variances / variances.sum() if float(variances.sum()) else variances
    return Spectrum(shares, float(torch.special.entr(shares).sum().exp()))


def _points(embeddings: Embeddings) -> Tensor:
    embeddings = checked(embeddings, "embeddings")
    norms(embeddings, "embeddings")
    return torch.cat([block for _, block in blocks(embeddings)])
