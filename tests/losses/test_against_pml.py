"""Values and gradients equal pytorch-metric-learning's in float64, for every loss it has."""

from collections.abc import Callable

import pytest
import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from torch import Tensor, nn

from sumpool.losses import (
    External,
    Memory,
    Mined,
    MultiSimilarity,
    NPair,
    OriginalContrastive,
    Proxies,
    Reference,
    Triplet,
)

Batch = tuple[Tensor, Tensor]
Build = Callable[..., nn.Module]
EXACT = {"rtol": 1e-6, "atol": 1e-9}


class PerAnchor(nn.Module):
    """C1 in pytorch-metric-learning's words: cosine hinges, summed and divided by the batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = losses.ContrastiveLoss(
            pos_margin=1, neg_margin=0.5, distance=distances.CosineSimilarity(), reducer=reducers.SumReducer()
        )

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.pairs(embeddings, labels) / len(labels)


def assert_same(value: Tensor, expected: Tensor, *to: Tensor) -> None:
    torch.testing.assert_close(value, expected, **EXACT)
    truth = torch.autograd.grad(expected, to)
    for gradient, expected_gradient in zip(torch.autograd.grad(value, to), truth, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, **EXACT)


PAIRS = {
    "original_contrastive": ({}, PerAnchor()),
    "contrastive": (
        {"positive_margin": 0.2652, "negative_margin": 1.1},
        losses.ContrastiveLoss(pos_margin=0.2652, neg_margin=1.1),
    ),
    "margin": ({"boundary": 1.1}, losses.MarginLoss(beta=1.1)),
    "triplet": ({"margin": 0.119}, losses.TripletMarginLoss(margin=0.119)),
    "multi_similarity": (
        {"alpha": 14.35, "beta": 75.83, "base": 0.66},
        losses.MultiSimilarityLoss(alpha=14.35, beta=75.83, base=0.66),
    ),
    "n_pair": ({}, losses.NPairsLoss()),
    "lifted_structure": ({}, losses.LiftedStructureLoss()),
    "circle": ({}, losses.CircleLoss()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pair_losses(name: str, batch: Batch, build: Build) -> None:
    embeddings, labels = batch
    settings, theirs = PAIRS[name]
    ours = build(name, **settings)
    assert_same(ours(embeddings, labels), theirs(embeddings, labels), embeddings)


PROXIES = {
    "proxy_anchor": ({"margin": 0.2, "scale": 20.0}, losses.ProxyAnchorLoss(6, 8, margin=0.2, alpha=20), "proxies"),
    "proxy_nca": ({"temperature": 0.11}, losses.ProxyNCALoss(6, 8, softmax_scale=1 / 0.11), "proxies"),
    "normalized_softmax": ({"temperature": 0.07}, losses.NormalizedSoftmaxLoss(6, 8, temperature=0.07), "W"),
    "soft_triple": (
        {"per_class": 3, "scale": 17.69, "temperature": 0.4, "margin": 0.3, "spread": 0.0},
        losses.SoftTripleLoss(6, 8, centers_per_class=3, la=17.69, gamma=0.4, margin=0.3),
        "fc",
    ),
}


@pytest.mark.parametrize("name", PROXIES)
def test_proxy_losses(name: str, batch: Batch, build: Build) -> None:
    embeddings, labels = batch
    settings, theirs, attribute = PROXIES[name]
    ours, theirs = build(name, **settings), theirs.double()
    vectors, weights = ours.proxies.vectors, getattr(theirs, attribute)
    columns = attribute in ("W", "fc")
    flat = vectors.detach().flatten(0, 1)
    weights.data.copy_(flat.T if columns else flat)
    value, expected = ours(embeddings, labels), theirs(embeddings, labels)
    torch.testing.assert_close(value, expected, **EXACT)
    gradient, own = torch.autograd.grad(value, (embeddings, vectors))
    truth, other = torch.autograd.grad(expected, (embeddings, weights))
    torch.testing.assert_close(gradient, truth, **EXACT)
    torch.testing.assert_close(own.flatten(0, 1), other.T if columns else other, **EXACT)


def test_multi_similarity_mining(batch: Batch) -> None:
    embeddings, labels = batch
    miner, theirs = miners.MultiSimilarityMiner(epsilon=0.1), losses.MultiSimilarityLoss(2, 40, 0.5)
    ours = MultiSimilarity(2, 40, 0.5, mining=0.1)
    assert ours(embeddings, labels) != MultiSimilarity(2, 40, 0.5)(embeddings, labels)
    assert_same(ours(embeddings, labels), theirs(embeddings, labels, miner(embeddings, labels)), embeddings)


@pytest.mark.parametrize("miner", [miners.MultiSimilarityMiner(), miners.TripletMarginMiner(margin=0.3)])
def test_their_miner_with_our_loss(miner: nn.Module, batch: Batch) -> None:
    embeddings, labels = batch
    ours, theirs = Mined(MultiSimilarity(2, 50, 0.5), miner), losses.MultiSimilarityLoss(2, 50, 0.5)
    assert_same(ours(embeddings, labels), theirs(embeddings, labels, miner(embeddings, labels)), embeddings)


def test_a_triplet_miner_does_not_fit_all_triplets(batch: Batch) -> None:
    with pytest.raises(ValueError, match="more than a triplet miner selected"):
        Mined(Triplet(), miners.TripletMarginMiner())(*batch)


def test_their_miner_in_a_memory_does_not_select_own_copies() -> None:
    torch.manual_seed(0)
    miner = miners.BatchEasyHardMiner(pos_strategy="easy", neg_strategy="hard")  # the easiest positive is the own copy
    ours = Memory(Mined(MultiSimilarity(2, 50, 0.5), miner), batches=2, start=0)
    theirs = losses.CrossBatchMemory(
        losses.MultiSimilarityLoss(2, 50, 0.5), embedding_size=8, memory_size=24, miner=miner
    )
    for _ in range(3):
        embeddings, labels = torch.randn(12, 8, dtype=torch.float64, requires_grad=True), torch.randint(4, (12,))
        within = Mined(MultiSimilarity(2, 50, 0.5), miner)(embeddings, labels)
        assert_same(ours(embeddings, labels) - within, theirs(embeddings, labels), embeddings)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (OriginalContrastive(), PerAnchor().pairs),
        (MultiSimilarity(2, 50, 0.5), losses.MultiSimilarityLoss(2, 50, 0.5)),
        (Triplet(0.2), losses.TripletMarginLoss(0.2)),
    ],
)
def test_memory(ours: nn.Module, theirs: nn.Module) -> None:
    torch.manual_seed(0)
    memory = Memory(ours, batches=3, start=0)
    truth = losses.CrossBatchMemory(theirs, embedding_size=8, memory_size=3 * 12)
    scale = 12 if isinstance(ours, OriginalContrastive) else 1
    for _ in range(5):  # wraps around the ring
        embeddings = torch.randn(12, 8, dtype=torch.float64, requires_grad=True)
        labels = torch.randint(4, (12,))
        assert_same(
            memory(embeddings, labels) - ours(embeddings, labels), truth(embeddings, labels) / scale, embeddings
        )


def test_their_loss_in_our_sets(batch: Batch) -> None:
    embeddings, _ = batch
    ours, theirs = MultiSimilarity(2, 50, 0.5), External(losses.MultiSimilarityLoss(2, 50, 0.5))
    first, second = Memory(ours, batches=3, start=0), Memory(theirs, batches=3, start=0)
    torch.testing.assert_close(first(*batch), second(*batch))
    first, second = Proxies(ours, 6, 8).double(), Proxies(theirs, 6, 8).double()
    second.proxies = first.proxies
    assert_same(first(*batch), second(*batch), embeddings, first.proxies.vectors)


def test_n_pair_against_a_memory_takes_one_pair_per_class() -> None:
    # Its own set is all pytorch-metric-learning knows; against another set the loss is worked out by hand.
    loss = NPair(norm="none")
    memory = torch.tensor([[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]])
    anchors = torch.tensor([[2.0, 1.0], [0.5, 3.0]])
    value = loss(anchors, [0, 1], Reference(memory, torch.tensor([0, 1, 1])))
    expected = (torch.log1p(torch.tensor(1.0 - 2.0).exp()) + torch.log1p(torch.tensor(0.5 - 3.0).exp())) / 2
    torch.testing.assert_close(value, expected)
