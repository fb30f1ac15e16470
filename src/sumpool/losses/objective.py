"""The objective: named, weighted terms, their total, and the values to log."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.losses.centres import CentreRegulariser
from sumpool.losses.checks import Classes, as_labels, checked
from sumpool.losses.proxies import ClassProxies
from sumpool.losses.zero_shot import ZeroShotPrediction
from sumpool.ops.gather import gather


class Term(NamedTuple):
    """One summand: a name for the log, its weight, and a loss, a `ZeroShotPrediction` or a centre regulariser."""

    name: str
    weight: float
    loss: Callable[..., Tensor]


class Outcome(NamedTuple):
    """What an objective returns; unpacks as `total, values`."""

    total: Tensor
    """Scalar to minimise."""
    values: dict[str, Tensor]
    """Each term before weighting, and the total: detached scalars to log."""


class Objective(nn.Module):
    """A weighted sum of terms over the batch of all processes.

    In a distributed run the rows of every process are gathered first, so that all terms see the whole batch and the
    averaged gradient is that of one process with the concatenated batch. Wrap the model in
    `DistributedDataParallel`, not the objective: its own parameters get the same gradient in every process.

    >>> from sumpool.losses import Contrastive, Triplet
    >>> objective = Objective([Term("pairs", 1.0, Contrastive()), Term("triplets", 0.5, Triplet())])
    >>> total, values = objective(torch.eye(3), ["gull", "gull", "wren"])
    >>> sorted(values)
    ['pairs', 'total', 'triplets']
    """

    def __init__(self, terms: Sequence[Term], classes: int | Sequence[int] | Sequence[str] | None = None) -> None:
        super().__init__()
        names = [term.name for term in terms]
        if not terms or len({*names, "total"}) != len(names) + 1:
            raise InputError(f"an objective needs terms with different names other than 'total', got {names}")
        self.terms = list(terms)
        try:  # registers the parameters; a plain function is a term as well
            self.losses = nn.ModuleDict({term.name: term.loss for term in terms if isinstance(term.loss, nn.Module)})
        except KeyError as taken:
            raise InputError(f"a term cannot be called so: {taken.args[0]}; choose another name") from None
        self.classes = None if classes is None else Classes(classes)
        if any(isinstance(term.loss, CentreRegulariser) for term in terms) and self.proxies is None:
            raise InputError("a centre regulariser needs a term with proxies, got none: use a proxy loss or Proxies")

    @property
    def proxies(self) -> ClassProxies | None:
        """The first term's proxies; None where no term has any."""
        return next((module for module in self.modules() if isinstance(module, ClassProxies)), None)

    def positions(self, labels: Any) -> Tensor:
        """Labels as integers: their positions among the classes, if the objective knows them."""
        if self.classes is not None:
            return self.classes.index(labels)
        if not isinstance(labels, Tensor):  # a term would see a string's hash only, and name that if it is unknown
            for module in self.modules():
                if isinstance(known := getattr(module, "classes", None), Classes):
                    known.index(labels)
        return as_labels(labels)

    def forward(self, embeddings: Tensor, labels: Any, attributes: Tensor | None = None) -> Outcome:
        """Total and values of a batch; `attributes` are the pooling's pseudo-attributes, if it has any."""
        embeddings, labels_B = checked(embeddings, self.positions(labels))
        embeddings, labels_B = gather(embeddings), gather(labels_B)
        attributes = None if attributes is None else gather(attributes)
        values = {term.name: self.value(term, embeddings, labels_B, attributes) for term in self.terms}
        total = torch.stack([term.weight * values[term.name] for term in self.terms]).sum()
        return Outcome(total, {name: value.detach() for name, value in (*values.items(), ("total", total))})

    def value(self, term: Term, embeddings: Tensor, labels_B: Tensor, attributes: Tensor | None) -> Tensor:
        """One term: what it is computed from depends on its kind."""
        loss: Callable[..., Tensor] = term.loss
        if isinstance(loss, ZeroShotPrediction):
            return loss.forward(attributes, labels_B)
        if isinstance(loss, CentreRegulariser):
            assert self.proxies is not None
            return loss.forward(self.proxies.centres())
        return loss(embeddings, labels_B)
