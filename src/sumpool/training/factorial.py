r"""Two-level fractional factorial designs: which factors matter, from few runs.

A design of k factors in :math:`2^{k-p}` runs takes all combinations of the first k − p factors; each further factor is
the product of some of them (its generator). With the generators below no main effect of four or more factors is
confounded with another or with an interaction of two factors (resolution IV or V).

Box, Hunter, Hunter, *Statistics for experimenters*, 2nd ed., 2005, table 6.22.
"""

from itertools import product
from math import prod
from statistics import fmean

from sumpool.errors import InputError

# Number of factors → generators of those beyond the basic ones, as positions among the basic ones.
GENERATORS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: (),
    2: (),
    3: (),
    4: ((0, 1, 2),),
    5: ((0, 1, 2, 3),),
    6: ((0, 1, 2), (1, 2, 3)),
    7: ((0, 1, 2), (1, 2, 3), (0, 2, 3)),
    8: ((1, 2, 3), (0, 2, 3), (0, 1, 2), (0, 1, 3)),
    9: ((1, 2, 3, 4), (0, 2, 3, 4), (0, 1, 3, 4), (0, 1, 2, 4)),
    10: ((0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 3, 4), (0, 2, 3, 4), (1, 2, 3, 4)),
    11: ((0, 1, 2), (1, 2, 3), (2, 3, 4), (0, 2, 3), (0, 3, 4), (1, 3, 4)),
}


def design(factors: int) -> list[tuple[int, ...]]:
    """The runs of a screening, each with a level −1 or +1 per factor.

    >>> len(design(4)), design(4)[0], design(4)[-1]
    (8, (-1, -1, -1, -1), (1, 1, 1, 1))
    """
    if factors not in GENERATORS:
        raise InputError(f"a factorial screening takes 1 to {max(GENERATORS)} settings, got {factors}")
    generators = GENERATORS[factors]
    basic = product((-1, 1), repeat=factors - len(generators))
    return [(*run, *(prod(run[place] for place in generator) for generator in generators)) for run in basic]


def main_effects(levels: list[tuple[int, ...]], scores: list[float]) -> list[float]:
    """Mean score at the high level of each factor minus that at the low level; NaN where a level was not run."""
    effects = []
    for factor in zip(*levels, strict=True):
        high, low = ([score for level, score in zip(factor, scores, strict=True) if level == side] for side in (1, -1))
        effects.append(fmean(high) - fmean(low) if high and low else float("nan"))
    return effects
