"""Student's t with any positive number of degrees of freedom: tail probability and critical value, without SciPy."""

import math
from statistics import NormalDist


def two_sided(t: float, df: float) -> float:
    """P(|T| ≥ |t|) = I_x(ν/2, 1/2) at x = ν / (ν + t²), where I is the regularised incomplete beta function.

    >>> round(two_sided(12.7062, df=1), 5)
    0.05
    """
    x, a, b = df / (df + t * t), df / 2, 0.5
    if x < (a + 1) / (a + b + 2):  # beyond, the fraction converges slowly, and I_x(a, b) = 1 − I_{1−x}(b, a)
        return _incomplete_beta(x, a, b)
    return 1 - _incomplete_beta(t * t / (df + t * t), b, a)


def critical(level: float, df: float) -> float:
    """The t with P(|T| ≤ t) = level.

    The tail probability is convex in t > 0 and the normal quantile lies left of the root: Newton's steps only go right.

    >>> round(critical(0.95, df=10), 4)
    2.2281
    """
    t, step = NormalDist().inv_cdf((1 + level) / 2), math.inf
    peak = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    while step > 1e-12 * t:
        density = peak * (1 + t * t / df) ** (-(df + 1) / 2)
        step = (two_sided(t, df) - (1 - level)) / (2 * density)
        t += step
    return t


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b) by its continued fraction (DLMF 8.17.22), evaluated forwards (modified Lentz method)."""
    if x == 0:
        return 0.0
    log_front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    fraction, forward, backward, change, n = 1.0, 1.0, 0.0, math.inf, 0
    while abs(change - 1) > 1e-15:
        n, m = n + 1, (n + 1) // 2
        factor = m * (b - m) if n % 2 == 0 else -(a + m) * (a + b + m)
        factor *= x / ((a + n - 1) * (a + n))
        forward, backward = 1 + factor / forward, 1 / (1 + factor * backward)
        change = forward * backward
        fraction *= change
    return math.exp(log_front) / (a * fraction)
