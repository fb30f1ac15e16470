r"""Skewed means: between the smallest, the average and the largest of a set of numbers.

One number moves the mean through the set: K for the exact version, λ for the smooth ones, which increase with λ from
the minimum (λ → −∞) over the usual mean to the maximum (λ → +∞).
"""

import torch
from torch import Tensor

from sumpool.errors import InputError


def skewed_mean(values: Tensor, count: int) -> Tensor:
    """M[K] along the last dimension: mean of the K largest (K > 0) or of the |K| smallest values (K < 0).

    >>> numbers = torch.tensor([4.0, 1.0, 3.0])
    >>> [skewed_mean(numbers, count).item() for count in (1, 2, 3, -1)]
    [4.0, 3.5, 2.6666667461395264, 1.0]
    """
    size = values.shape[-1]
    if not 1 <= abs(count) <= size:
        raise InputError(f"count must be ±1 … ±{size} for {size} values, got {count}")
    return values.topk(abs(count), largest=count > 0, sorted=False).values.mean(-1)


def log_exp_mean(values: Tensor, skew: float) -> Tensor:
    r"""$b(\lambda) = \frac1\lambda \log \frac1N \sum_i e^{\lambda s_i}$ along the last dimension; the mean at λ = 0.

    Another base $a$ is another skew: $\frac1\lambda\log_a\frac1N\sum_i a^{\lambda s_i} = b(\lambda\ln a)$.
    Computed as $s^* + \frac1\lambda\log\frac1N\sum_i e^{\lambda(s_i - s^*)}$ with $s^*$ the maximum (λ > 0) or minimum:
    no exponential overflows. Where the mean of the exponentials is near 1, it is 1 plus the mean of $e^x - 1$: nothing
    cancels, neither for small |λ| nor where few of many values dominate.
    """
    limits = torch.finfo(values.dtype)
    if not abs(skew) <= limits.max:
        raise InputError(f"skew must be a finite number of type {values.dtype}, got {skew}")
    if abs(skew) < limits.smallest_normal / limits.eps:
        return values.mean(-1)  # to the last digit, where λ·s would be rounded to a few bits
    extreme = (values.amax(-1) if skew > 0 else values.amin(-1)).detach()
    exponent = skew * (values - extreme.unsqueeze(-1))
    excess = torch.expm1(exponent).mean(-1)  # torch sums in blocks: millions of terms in float32 stay accurate
    near = torch.log1p(excess.clamp(min=-0.5))  # clamped, since the gradient of what is not taken must be finite
    return extreme + near.where(excess > -0.5, exponent.exp().mean(-1).log()) / skew


def power_mean(values: Tensor, skew: float) -> Tensor:
    r"""$b(\lambda) = (\frac1N \sum_i s_i^\lambda)^{1/\lambda}$ of positive values; the geometric mean at λ = 0.

    It is the log-exp mean of the logarithms, and as stable: $\exp b_{\log\text{-}\exp}(\lambda; \log s)$.
    """
    return log_exp_mean(values.log(), skew).exp()
