"""ProxyNCA and ProxyNCA++.

Shape letters: B batch, C classes (one proxy each).
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sumpool.errors import InputError
from sumpool.losses.checks import above_zero
from sumpool.losses.proxies import ProxyLoss


def proxy_nca(cosines_BC: Tensor, index_B: Tensor, temperature: float) -> Tensor:
    r"""Mean of $-\log\frac{e^{-d^2(x,p_x)/T}}{\sum_{p} e^{-d^2(x,p)/T}}$, the sum over all proxies; $d^2 = 2 - 2s$.

    Teh, DeVries, Taylor, *ProxyNCA++*, ECCV 2020.
    """
    return cross_entropy(cosines_BC * (2 / temperature), index_B, reduction="sum") / max(len(index_B), 1)


def original_proxy_nca(cosines_BC: Tensor, index_B: Tensor, temperature: float) -> Tensor:
    r"""Mean of $-\log\frac{e^{-d^2(x,p_x)/T}}{\sum_{p\ne p_x} e^{-d^2(x,p)/T}}$: the own proxy is not in the sum.

    Movshovitz-Attias et al., *No fuss distance metric learning using proxies*, ICCV 2017. It can be negative.
    """
    logits_BC = cosines_BC * (2 / temperature)
    own_B1 = index_B.unsqueeze(1)
    others_BC = logits_BC.scatter(1, own_B1, torch.finfo(logits_BC.dtype).min)
    return (torch.logsumexp(others_BC, 1) - logits_BC.gather(1, own_B1).squeeze(1)).sum() / max(len(index_B), 1)


class ProxyNCA(ProxyLoss):
    """ProxyNCA++: softmax over the squared distances to all proxies, with a low temperature.

    With `temperature=1` it is what pytorch-metric-learning calls ProxyNCA.
    """

    def __init__(
        self,
        classes: int | Sequence[int] | Sequence[str],
        dim: int,
        temperature: float = 0.11,
        lr_multiplier: float = 100.0,
    ) -> None:
        super().__init__(classes, dim, lr_multiplier=lr_multiplier)
        self.temperature = above_zero("temperature", temperature)

    def formula(self, cosines_BCK: Tensor, index_B: Tensor) -> Tensor:
        """See `proxy_nca`."""
        return proxy_nca(cosines_BCK.squeeze(2), index_B, self.temperature)


class OriginalProxyNCA(ProxyLoss):
    """ProxyNCA as first published: the own proxy against the soft minimum of all others."""

    def __init__(
        self,
        classes: int | Sequence[int] | Sequence[str],
        dim: int,
        temperature: float = 1.0,
        lr_multiplier: float = 100.0,
    ) -> None:
        super().__init__(classes, dim, lr_multiplier=lr_multiplier)
        if self.proxies.classes.count < 2:
            raise InputError("ProxyNCA compares with the other classes' proxies and needs at least 2 classes, got 1")
        self.temperature = above_zero("temperature", temperature)

    def formula(self, cosines_BCK: Tensor, index_B: Tensor) -> Tensor:
        """See `original_proxy_nca`."""
        return original_proxy_nca(cosines_BCK.squeeze(2), index_B, self.temperature)
