"""SoftTriple loss.

Shape letters: B batch, C classes, K centres per class, D dimensions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from sumpool.losses.checks import above_zero, setting
from sumpool.losses.proxies import ProxyLoss


def soft_triple(cosines_BCK: Tensor, index_B: Tensor, scale: float, temperature: float, margin: float) -> Tensor:
    r"""Mean cross-entropy of the logits $\lambda(S_{bc} - \delta[c = y_b])$, with the class similarity
    $S_{bc} = \sum_k \mathrm{softmax}_k(s_{bck}/\gamma)\, s_{bck}$ relaxing the maximum over the class's centres.

    Qian et al., *SoftTriple loss: deep metric learning without triplet sampling*, ICCV 2019.
    """
    class_BC = (torch.softmax(cosines_BCK / temperature, 2) * cosines_BCK).sum(2)
    own_B1 = index_B.unsqueeze(1)
    margins = class_BC.new_full((1, 1), -scale * margin).expand_as(own_B1)
    logits_BC = (scale * class_BC).scatter_add(1, own_B1, margins)
    return cross_entropy(logits_BC, index_B, reduction="sum") / max(len(index_B), 1)


def centre_spread(centres_CKD: Tensor) -> Tensor:
    r"""Mean $\sqrt{2 - 2 w_k^\top w_l}$ over the pairs of centres of one class, halved as in the paper.

    Small where a class does not need all its centres: they merge.
    """
    count = centres_CKD.shape[1]
    if count == 1:
        return centres_CKD.sum() * 0
    unit_CKD = normalize(centres_CKD, dim=2)
    first, second = torch.triu_indices(count, count, 1, device=centres_CKD.device)
    cosines = (unit_CKD @ unit_CKD.mT)[:, first, second]
    # The paper's code adds 1e-5 under the root: merged centres would have an infinite slope.
    return (2 + 1e-5 - 2 * cosines).clamp(min=1e-5).sqrt().mean() / 2


class SoftTriple(ProxyLoss):
    """SoftTriple: several centres per class, softly assigned, in a softmax with margin."""

    def __init__(
        self,
        classes: int | Sequence[int] | Sequence[str],
        dim: int,
        per_class: int = 10,
        scale: float = 20.0,
        temperature: float = 0.1,
        spread: float = 0.2,
        margin: float = 0.01,
        lr_multiplier: float = 100.0,
    ) -> None:
        super().__init__(classes, dim, per_class, lr_multiplier)
        self.scale = above_zero("scale", scale)
        self.temperature = above_zero("temperature", temperature)
        self.spread = setting("spread", spread, 0)
        self.margin = setting("margin", margin, 0)

    def formula(self, cosines_BCK: Tensor, index_B: Tensor) -> Tensor:
        """See `soft_triple`; `spread` (τ) weighs `centre_spread`."""
        loss = soft_triple(cosines_BCK, index_B, self.scale, self.temperature, self.margin)
        return loss + self.spread * centre_spread(self.proxies.vectors.to(loss.dtype)) if self.spread else loss
