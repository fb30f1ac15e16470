"""Class-disjoint folds: contiguous ranges of classes, the same on every machine.

The fair protocol cuts the training classes into 4 ranges and validates model i on range i; tuning holds out one
range of 5 (generalized sum pooling) or of 3 (the CCP ablations).
"""

from itertools import pairwise

from sumpool.errors import InputError


def fold_ranges(classes: int, parts: int) -> list[range]:
    """Cut classes 0 … C−1 into contiguous ranges at ⌊C·i/parts⌋.

    >>> fold_ranges(10, 4)
    [range(0, 2), range(2, 5), range(5, 7), range(7, 10)]
    """
    if not 2 <= parts <= classes:
        raise InputError(f"folds must number between 2 and the {classes} classes, got {parts}")
    edges = [classes * part // parts for part in range(parts + 1)]
    return [range(start, stop) for start, stop in pairwise(edges)]
