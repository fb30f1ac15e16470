"""Normalised softmax.

Shape letters: B batch, C classes.
"""

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import cross_entropy

from sumpool.losses.checks import above_zero
from sumpool.losses.proxies import ProxyLoss


def normalized_softmax(cosines_BC: Tensor, index_B: Tensor, temperature: float) -> Tensor:
    r"""Mean cross-entropy of the logits $s(x, p_c)/T$.

    Zhai, Wu, *Classification is a strong baseline for deep metric learning*, BMVC 2019.
    """
    return cross_entropy(cosines_BC / temperature, index_B, reduction="sum") / max(len(index_B), 1)


class NormalizedSoftmax(ProxyLoss):
    """Normalised softmax: classification by cosine, with a temperature."""

    def __init__(
        self,
        classes: int | Sequence[int] | Sequence[str],
        dim: int,
        temperature: float = 0.05,
        lr_multiplier: float = 100.0,
    ) -> None:
        super().__init__(classes, dim, lr_multiplier=lr_multiplier)
        self.temperature = above_zero("temperature", temperature)

    def formula(self, cosines_BCK: Tensor, index_B: Tensor) -> Tensor:
        """See `normalized_softmax`."""
        return normalized_softmax(cosines_BCK.squeeze(2), index_B, self.temperature)
