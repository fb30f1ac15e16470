"""Losses, forward and backward, against pytorch-metric-learning on the same inputs.

B = 128 rows of 32 classes, D = 512; XBM with C1 against a full memory of 44,800 × 128 (350 batches); ProxyAnchor with
11,318 classes; SoftTriple with 11,318 × 4 centres, D = 512. The aim: not slower anywhere, and at least 2× faster or 2×
leaner on triplet, XBM and SoftTriple. What bounds it: ProxyAnchor and SoftTriple are three matrix products with the
proxies, which both sides do; what can be saved is the normalised copy of the proxies and the passes over the matrix of
cosines. N-pair is under a millisecond of work, so what counts is how few of its operations wake a sleeping thread.
Peak memory is above the inputs and parameters, and includes the gradients.
"""

from collections.abc import Callable

import torch
from pytorch_metric_learning import distances, losses, reducers  # type: ignore[import-untyped]
from torch import Tensor, nn

from benchmarks.measure import all_threads, median_seconds, peak_bytes, threads
from sumpool.losses import (
    Circle,
    Contrastive,
    LiftedStructure,
    Margin,
    Memory,
    MultiSimilarity,
    NormalizedSoftmax,
    NPair,
    OriginalContrastive,
    ProxyAnchor,
    ProxyNCA,
    SoftTriple,
    Triplet,
)

BATCH, DIM, MEMORY_DIM, BATCHES, CLASSES = 128, 512, 128, 350, 11_318


def cosine_contrastive() -> nn.Module:
    loss: nn.Module = losses.ContrastiveLoss(
        1, 0.5, distance=distances.CosineSimilarity(), reducer=reducers.SumReducer()
    )
    return loss


def small() -> dict[str, tuple[nn.Module, nn.Module]]:
    """Ours and theirs, within the batch."""
    return {
        "C1 (original_contrastive)": (OriginalContrastive(), cosine_contrastive()),
        "C2 (contrastive)": (Contrastive(0, 0.5), losses.ContrastiveLoss(0, 0.5)),
        "margin": (Margin(), losses.MarginLoss()),
        "triplet": (Triplet(0.05), losses.TripletMarginLoss(0.05)),
        "multi_similarity": (MultiSimilarity(2, 40, 0.5), losses.MultiSimilarityLoss(2, 40, 0.5)),
        "n_pair": (NPair(), losses.NPairsLoss()),
        "lifted_structure": (LiftedStructure(), losses.LiftedStructureLoss()),
        "circle": (Circle(), losses.CircleLoss()),
    }


def large() -> dict[str, tuple[nn.Module, nn.Module]]:
    """Ours and theirs, with 11,318 classes."""
    return {
        "proxy_anchor, 11,318": (ProxyAnchor(CLASSES, DIM), losses.ProxyAnchorLoss(CLASSES, DIM)),
        "proxy_nca, 11,318": (ProxyNCA(CLASSES, DIM, 1.0), losses.ProxyNCALoss(CLASSES, DIM)),
        "normalized_softmax, 11,318": (NormalizedSoftmax(CLASSES, DIM), losses.NormalizedSoftmaxLoss(CLASSES, DIM)),
        "soft_triple, 11,318 × 4": (
            SoftTriple(CLASSES, DIM, per_class=4, spread=0.0),
            losses.SoftTripleLoss(CLASSES, DIM, centers_per_class=4),
        ),
    }


def xbm() -> dict[str, tuple[nn.Module, nn.Module]]:
    """Ours and theirs against a full memory; ours has the in-batch term as well."""
    ours = Memory(OriginalContrastive(), batches=BATCHES, start=0)
    theirs = losses.CrossBatchMemory(cosine_contrastive(), MEMORY_DIM, memory_size=BATCHES * BATCH)
    for _ in range(BATCHES):
        embeddings, labels = torch.randn(BATCH, MEMORY_DIM), torch.randint(CLASSES, (BATCH,))
        ours.store(embeddings, labels)
        theirs.add_to_memory(embeddings, labels, BATCH)
    theirs.has_been_filled = True
    return {"xbm + C1, 44,800": (ours, theirs)}


def step(loss: nn.Module, embeddings: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward and backward of one batch, as a training step would do it."""

    def run() -> None:
        for tensor in (embeddings, *loss.parameters()):
            tensor.grad = None
        loss(embeddings, labels).backward()

    return run


def run() -> list[dict[str, object]]:
    torch.manual_seed(0)
    rows: list[dict[str, object]] = []
    for group, dim, classes, rounds in ((small, DIM, 32, 31), (xbm, MEMORY_DIM, CLASSES, 11), (large, DIM, CLASSES, 9)):
        for name, (ours, theirs) in group().items():
            embeddings = torch.randn(BATCH, dim, requires_grad=True)
            labels = torch.arange(BATCH) // 4 if classes == 32 else torch.randint(classes, (BATCH,))
            steps = {"ours": step(ours, embeddings, labels), "theirs": step(theirs, embeddings, labels)}
            row: dict[str, object] = {"loss": name}
            for count in sorted({1, all_threads()}):
                with threads(count):
                    times = median_seconds(steps, rounds)
                row[f"ms, {count} thread{'s' * (count > 1)}"] = f"{1e3 * times['ours']:.1f}"
                row[f"× faster, {count}"] = f"{times['theirs'] / times['ours']:.2f}"
            peaks = {side: peak_bytes(run) for side, run in steps.items()}
            row |= {"peak MB": f"{peaks['ours'] / 1e6:.1f}", "× leaner": f"{peaks['theirs'] / peaks['ours']:.2f}"}
            rows.append(row)
            ours.to("meta"), theirs.to("meta")  # frees the parameters of the large ones
    return rows
