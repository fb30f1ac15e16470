"""GAP analysis: global average pooling mixes prototypes (chapter 4 of the thesis).

Command: `sumpool study gap-analysis --data-root DATA --out docs/studies/gap-analysis`; trainings are kept in
`out/gap-analysis` and `out/cifar10-start`.

Setting: CIFAR-10, ResNet20, local features in the plane, GAP, ProxyNCA++ on all ten classes; features scaled so that
the longest has length 1. Greedy k-center picks 48 prototypes among the local features of 64 test images per class; δ is
their covering radius. A feature belongs to the cell of its nearest prototype, and an image's histogram over the cells
mixes the prototypes: PCC, the prototype convex combination. A prototype is active for a class if it holds at least 1/48
of the class's features. At scale cpu 2000 images of each class are used, and the training continues one with 128-D
embeddings.

Claim: PCC is nearer to GAP than δ for every image; the convex hulls of the classes' active prototypes overlap.

Measured: on all 5000 test images ‖PCC − GAP‖ is at most 0.027 (mean 0.0080), below δ = 0.124, although single features
lie up to 0.181 from their prototype. The hulls of all pairs of classes overlap, by 0.40 (intersection over union) on
average.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from sumpool.data import Dataset, InOrder, Loader
from sumpool.embedder import Embedder
from sumpool.evaluation.engines import run_trials
from sumpool.evaluation.statistics import estimate
from sumpool.evaluation.trial import prepared_test
from sumpool.ops.k_center import greedy_k_center
from sumpool.retrieval.hulls import hull_overlap
from sumpool.studies.base import Call, Outcome, Verdict, markdown_table
from sumpool.studies.collage import run_folder
from sumpool.studies.gap_figures import draw_hulls, draw_plane
from sumpool.studies.ten_classes import DIGITS, cifar10_start, ten_classes
from sumpool.training.config import TrainConfig
from sumpool.training.run import BEST

PROTOTYPES, PER_CLASS = 48, 64


class Cells(NamedTuple):
    """Images as mixtures of the prototypes whose cells their local features fall into."""

    shares: Tensor
    """(B,M) p*, the share of an image's features in each cell."""
    error: Tensor
    """(B,) ‖PCC − GAP‖."""
    radius: Tensor
    """(B,) largest distance of a feature from its prototype."""


def histogram(features_BND: Tensor, prototypes_MD: Tensor) -> Cells:
    r"""Replace every local feature by its nearest prototype, and compare the averages.

    .. math:: \Bigl\lVert \sum_i p^*_i \nu_i - \frac1n \sum_j f_j \Bigr\rVert_2
              = \Bigl\lVert \frac1n \sum_j (\nu_{i(j)} - f_j) \Bigr\rVert_2 \le \max_j \lVert \nu_{i(j)} - f_j \rVert_2
              \le \delta

    when every feature has a prototype within δ. `shares` are :math:`p^*`, the sum over i is PCC, that over j GAP.
    """
    apart_BNM = torch.cdist(features_BND, prototypes_MD)
    nearest_BN = apart_BNM.argmin(2)
    shares_BM = torch.nn.functional.one_hot(nearest_BN, len(prototypes_MD)).to(features_BND).mean(1)
    error_B = torch.linalg.vector_norm(shares_BM @ prototypes_MD - features_BND.mean(1), dim=1)
    return Cells(shares_BM, error_B, apart_BNM.amin(2).amax(1))


def gap_analysis(call: Call) -> Outcome:
    """What global average pooling does: it mixes prototypes (chapter 4 of the thesis)."""
    settings = config(call)
    folder = run_folder(call.work, "GAP", settings)
    run_trials([(settings, folder)], call.jobs)
    embedder = Embedder.load(folder / BEST)
    test = prepared_test(settings, embedder)
    features = local_features(embedder, test)
    sampled = first_of_each_class(test.labels, PER_CLASS)
    pool = features[sampled].flatten(0, 1)
    picked = greedy_k_center(pool, PROTOTYPES)
    prototypes, cover = pool[picked.indices], float(picked.radius)
    cells = histogram(features, prototypes)
    active = class_shares(cells.shares, test.labels) >= 1 / PROTOTYPES
    overlap = hull_overlap(*active_points(active, prototypes))
    draw_plane(features[sampled], cells.shares[sampled], prototypes, cells.error, cover, call.out / "cells.png")
    draw_hulls(features, test, prototypes, active, call.out / "hulls.png")
    results = numbers(cells, cover, test, active, overlap)
    return Outcome(results, body(results), *verdict(results))


def config(call: Call) -> TrainConfig:
    """GAP over local features in the plane, trained on all ten classes; handwritten digits at scale smoke."""
    data = DIGITS if call.scale == "smoke" else cifar10_start(call)
    return ten_classes(call, call.pick(2, 800, 10_000), pooling="gap", dim=2, **data)


@torch.no_grad()
def local_features(embedder: Embedder, images: Dataset) -> Tensor:
    """(B,N,2) what GAP averages, scaled as in the thesis: the longest has length 1."""
    maps = [embedder.backbone(batch.images) for batch in Loader(images, InOrder(len(images), 128))]
    features = embedder.pooling.project(torch.cat(maps).flatten(2).mT)
    scaled: Tensor = features / torch.linalg.vector_norm(features, dim=2).max()
    return scaled


def first_of_each_class(labels: Tensor, count: int) -> Tensor:
    """Rows of the first `count` images of every class."""
    return torch.cat([(labels == label).nonzero()[:count, 0] for label in labels.unique()])


def class_shares(shares_BM: Tensor, labels: Tensor) -> Tensor:
    """(C,M) share of a class's local features in every cell."""
    return torch.stack([shares_BM[labels == label].mean(0) for label in labels.unique()])


def active_points(active_CM: Tensor, prototypes_MD: Tensor) -> tuple[Tensor, Tensor]:
    """The prototypes of every class, one class after another, and their classes."""
    label, prototype = active_CM.nonzero(as_tuple=True)
    return prototypes_MD[prototype], label


def numbers(cells: Cells, cover: float, test: Dataset, active_CM: Tensor, overlap_CC: Tensor) -> dict[str, Any]:
    """What the page and results.json say."""
    error, per_image = cells.error.double(), cells.radius.double()
    pairs = overlap_CC[~torch.eye(len(overlap_CC), dtype=torch.bool)]
    return {
        "images": len(error),
        "cover": cover,
        "within cover": float((error <= cover).double().mean()),
        "within own radius": float((error <= per_image + 1e-6).double().mean()),
        "error": estimate(error[None].numpy(), test.labels.numpy()).json(),
        "largest error": float(error.max()),
        "largest radius": float(per_image.max()),
        "active prototypes": active_CM.sum(1).double().mean().item(),
        "overlapping pairs of classes": float((pairs > 0).double().mean()),
        "overlap": float(pairs.mean()),
    }


def verdict(results: dict[str, Any]) -> tuple[Verdict, str]:
    """The bound must hold for every image, and the hulls of classes must overlap."""
    holds = results["within cover"] == results["within own radius"] == 1
    found: Verdict = "reproduced" if holds and results["overlapping pairs of classes"] > 0 else "not reproduced"
    return found, (
        f"The bound ‖PCC − GAP‖ ≤ δ = {results['cover']:.3f} holds for {results['within cover']:.2%} of the "
        f"{results['images']} test images; the largest error is {results['largest error']:.3f}."
    )


def body(results: dict[str, Any]) -> str:
    """The figures and the table."""
    low, high = results["error"]["ci95"]
    rows = {
        f"covering radius δ of the {PROTOTYPES} prototypes on the sample": f"{results['cover']:.3f}",
        "largest distance of any test feature from its prototype": f"{results['largest radius']:.3f}",
        "‖PCC − GAP‖, mean over test images": f"{results['error']['mean']:.4f} [{low:.4f}, {high:.4f}]",
        "‖PCC − GAP‖, largest": f"{results['largest error']:.3f}",
        "test images with ‖PCC − GAP‖ ≤ δ": f"{results['within cover']:.2%} of {results['images']}",
        "active prototypes of a class, mean": f"{results['active prototypes']:.1f}",
        "pairs of classes whose hulls overlap": f"{results['overlapping pairs of classes']:.0%}",
        "intersection over union of two classes' hulls, mean": f"{results['overlap']:.2f}",
    }
    table = markdown_table([{"quantity": name, "value": value} for name, value in rows.items()])
    return (
        "![cells of the prototypes, PCC beside GAP, and their distances](cells.png)\n\n"
        f"![convex hulls of the classes](hulls.png)\n\n{table}"
    )
