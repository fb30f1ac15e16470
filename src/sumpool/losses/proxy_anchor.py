"""Proxy-Anchor loss.

Shape letters: B batch, C classes (one proxy each), P classes present in the batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import softplus

from sumpool.losses.checks import above_zero, setting
from sumpool.losses.proxies import ProxyLoss
from sumpool.ops.pairs import masked_logsumexp


def proxy_anchor(cosines_BC: Tensor, index_B: Tensor, margin: float, scale: float) -> Tensor:
    r"""$\frac1{|P^+|}\sum_{p\in P^+}\log\bigl(1 + \sum_{x\in X_p^+} e^{-\alpha(s(x,p) - \delta)}\bigr)
    + \frac1{|P|}\sum_{p\in P}\log\bigl(1 + \sum_{x\in X_p^-} e^{\alpha(s(x,p) + \delta)}\bigr)$.

    Kim et al., *Proxy anchor loss for deep metric learning*, CVPR 2020: $P^+$ are the proxies of the classes present.
    """
    present_P, place_B = index_B.unique(return_inverse=True)
    own_B = cosines_BC.gather(1, index_B.unsqueeze(1)).squeeze(1)
    # A batch row is positive for one proxy only, so the first sum needs B numbers and not a (B,C) matrix.
    positive_BP = place_B.unsqueeze(1) == torch.arange(len(present_P), device=place_B.device)
    pull_P = masked_logsumexp((scale * (margin - own_B)).unsqueeze(1).expand_as(positive_BP), positive_BP, 0)
    lowest = torch.finfo(cosines_BC.dtype).min
    others_BC = (scale * cosines_BC).scatter(1, index_B.unsqueeze(1), lowest)
    push_C = torch.logsumexp(others_BC, 0) + scale * margin
    return softplus(pull_P).sum() / max(len(present_P), 1) + softplus(push_C).mean()


class ProxyAnchor(ProxyLoss):
    """Proxy-Anchor: each proxy pulls its hardest batch members and pushes the nearest of the others."""

    def __init__(
        self,
        classes: int | Sequence[int] | Sequence[str],
        dim: int,
        margin: float = 0.1,
        scale: float = 32.0,
        lr_multiplier: float = 100.0,
    ) -> None:
        super().__init__(classes, dim, lr_multiplier=lr_multiplier)
        self.margin = setting("margin", margin, 0)
        self.scale = above_zero("scale", scale)

    def formula(self, cosines_BCK: Tensor, index_B: Tensor) -> Tensor:
        """See `proxy_anchor`."""
        return proxy_anchor(cosines_BCK.squeeze(2), index_B, self.margin, self.scale)
