"""Intra-batch message passing (LIBC): the batch members refine each other before they are classified.

Shape letters: B batch, D dimensions, H heads, C classes.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu, scaled_dot_product_attention

from sumpool.errors import InputError
from sumpool.losses.base import full_precision
from sumpool.losses.checks import Classes, above_zero, checked, setting, whole


class MessagePassing(nn.Module):
    """One step on the complete graph of the batch: attention over all members, then a two-layer network.

    Both parts add to what they get and are followed by a layer norm.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        heads = whole("heads", heads, 1)
        if dim % heads:
            raise InputError(f"heads must divide dim, got {heads} heads for {dim} dimensions")
        self.heads = heads
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.output = nn.Linear(dim, dim)
        self.first = nn.Linear(dim, dim)
        self.second = nn.Linear(dim, dim)
        self.attention_norm = nn.LayerNorm(dim)
        self.network_norm = nn.LayerNorm(dim)

    def forward(self, nodes_BD: Tensor) -> Tensor:
        """Refined nodes (B,D)."""
        split_B3HD = self.query_key_value(nodes_BD).unflatten(1, (3, self.heads, -1))
        query_HBD, key_HBD, value_HBD = split_B3HD.permute(1, 2, 0, 3)
        messages_HBD = scaled_dot_product_attention(query_HBD, key_HBD, value_HBD)
        nodes_BD = self.attention_norm(nodes_BD + self.output(messages_HBD.transpose(0, 1).flatten(1)))
        refined_BD: Tensor = self.network_norm(nodes_BD + self.second(relu(self.first(nodes_BD))))
        return refined_BD


class IntraBatch(nn.Module):
    r"""LIBC: cross-entropy of batch members refined by message passing, plus of the embeddings themselves.

    Seidenschwarz, Elezi, Leal-Taixé, *Learning intra-batch connections for deep metric learning*, ICML 2021. Both
    classifiers use a temperature and label smoothing; `auxiliary` weighs the loss of the embeddings themselves, which
    are what is used after training: the messages are only passed in the loss.
    """

    def __init__(
        self,
        classes: int | Sequence[int] | Sequence[str],
        dim: int,
        steps: int = 1,
        heads: int = 4,
        temperature: float = 1.0,
        smoothing: float = 0.1,
        auxiliary: float = 1.0,
        lr_multiplier: float = 1.0,
    ) -> None:
        super().__init__()
        self.classes, dim = Classes(classes), whole("dim", dim, 1)
        self.steps = nn.Sequential(*(MessagePassing(dim, heads) for _ in range(whole("steps", steps, 1))))
        self.classify_refined = nn.Linear(dim, self.classes.count)
        self.classify_embedding = nn.Linear(dim, self.classes.count)
        self.temperature = above_zero("temperature", temperature)
        self.smoothing = setting("smoothing", smoothing, 0, 1)
        self.auxiliary = setting("auxiliary", auxiliary, 0)
        for module in self.modules():
            module.lr_multiplier = above_zero("lr_multiplier", lr_multiplier)  # type: ignore[assignment]

    def forward(self, embeddings: Tensor, labels: Any) -> Tensor:
        """The loss of a batch."""
        embeddings_BD, index_B = checked(embeddings, self.classes.index(labels))
        weight_CD = self.classify_embedding.weight
        if embeddings_BD.shape[1] != weight_CD.shape[1]:
            raise InputError(f"the classifier has {weight_CD.shape[1]} dimensions, the batch {embeddings_BD.shape[1]}")
        embeddings_BD = embeddings_BD.to(weight_CD.dtype)
        with full_precision(embeddings_BD):
            refined = self.entropy(self.classify_refined(self.steps(embeddings_BD)), index_B)
            return refined + self.auxiliary * self.entropy(self.classify_embedding(embeddings_BD), index_B)

    def entropy(self, logits_BC: Tensor, index_B: Tensor) -> Tensor:
        """Smoothed cross-entropy at the temperature."""
        logits_BC = logits_BC / self.temperature
        total = cross_entropy(logits_BC, index_B, reduction="sum", label_smoothing=self.smoothing)
        return total / max(len(index_B), 1)
