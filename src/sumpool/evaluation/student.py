"""Student's t with any positive number of degrees of freedom: tail probability and critical value."""

import math


def two_sided(t: float, df: float) -> float:
    r"""P(|T| ≥ |t|) = I_x(ν/2, 1/2) with x = ν / (ν + t²), I the regularised incomplete beta function.

    >>> round(two_sided(12.7062, 1), 5)
    0.05
    """
    # Above the mean of the beta distribution the fraction converges slowly; there I_x(a, b) = 1 − I_{1−x}(b, a).
    x, a, b = df / (df + t * t), df / 2, 0.5
    if x < (a + 1) / (a + b + 2):
        return _incomplete_beta(x, a, b)
    return 1 - _incomplete_beta(t * t / (df + t * t), b, a)


def critical(level: float, df: float) -> float:
    """The t with P(|T| ≤ t) = level, by bisection.

    >>> round(critical(0.95, 10), 4)
    2.2281
    """
    low, high = 0.0, 1.0
    while two_sided(high, df) > 1 - level:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if two_sided(middle, df) > 1 - level else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b) by its continued fraction (DLMF 8.17.22), evaluated with the modified Lentz method."""
    if x == 0:
        return 0.0
    front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    value, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(10_000):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        denominator = 1 / (1 + term * denominator)
        numerator = 1 + term / numerator
        value *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-15:
            break
    return math.exp(front) * (value - 1) / a
