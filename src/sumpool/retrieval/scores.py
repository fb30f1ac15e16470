r"""Retrieval scores of one query from the ranks of its positives, and the table of their names.

A query has R positives in the gallery, at ranks :math:`r_1 < r_2 < \dots < r_R`; the i-th of them has precision
:math:`i / r_i` there.

=======  ==============================================================================================================
p@1      1 if :math:`r_1 = 1`
p@r      R-precision, :math:`|\{i : r_i \le R\}| / R`
map@r    :math:`\frac1R \sum_{i : r_i \le R} i / r_i`: precision only where the retrieval is correct (Musgrave et al.,
         ECCV 2020)
map      average precision over all positives, :math:`\frac1R \sum_i i / r_i`
mrr      reciprocal rank, :math:`1 / r_1`
r@k      1 if :math:`r_1 \le k`, for any k
=======  ==============================================================================================================
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.registry import nearest as hint


class Score(NamedTuple):
    """A score and how deep into the ranking it looks."""

    of: Callable[[Tensor, Tensor], Tensor]
    """Ranks (n,P), ascending and infinite where missing, and numbers of positives R (n,) → scores (n,)."""
    first: float = 0
    """Up to this rank, where the first positive is matters."""
    every: float | None = 0
    """Up to this rank, where every positive is matters; None for R."""


def precision_at_1(ranks: Tensor, positives: Tensor) -> Tensor:
    """P@1."""
    return recall_at(1)(ranks, positives)


def r_precision(ranks: Tensor, positives: Tensor) -> Tensor:
    """P@R."""
    return (ranks <= positives[:, None]).sum(1) / positives


def map_at_r(ranks: Tensor, positives: Tensor) -> Tensor:
    """MAP@R."""
    return average_precision(ranks.where(ranks <= positives[:, None], torch.inf), positives)


def average_precision(ranks: Tensor, positives: Tensor) -> Tensor:
    """AP, whose mean is mAP."""
    return (torch.arange(1, ranks.shape[1] + 1) / ranks).sum(1) / positives


def reciprocal_rank(ranks: Tensor, positives: Tensor) -> Tensor:
    """1/rank of the first positive."""
    return 1 / ranks[:, 0]


def recall_at(k: float) -> Callable[[Tensor, Tensor], Tensor]:
    """R@k."""
    return lambda ranks, positives: (ranks[:, 0] <= k).double()


SCORES = {
    "p@1": Score(precision_at_1, first=1),
    "p@r": Score(r_precision, every=None),
    "map@r": Score(map_at_r, every=None),
    "map": Score(average_precision, every=torch.inf),
    "mrr": Score(reciprocal_rank, first=torch.inf),
}
CLUSTERING = ("nmi", "ami")


def find_score(name: str) -> Score:
    """The score called `name`; `r@10` and the like need no entry in the table."""
    if name in SCORES:
        return SCORES[name]
    if match := re.fullmatch(r"r@([1-9]\d*)", name):
        k = min(float(match[1]), 2.0**53)  # beyond every gallery, but not the infinite rank of what was not found
        return Score(recall_at(k), first=k)
    raise InputError(f"unknown metric {name!r}: {hint(name, [*SCORES, 'r@1', 'r@10', *CLUSTERING])}")
