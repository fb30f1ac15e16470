"""NMI and AMI of a k-means clustering with as many clusters as classes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.retrieval.arrays import Embeddings, blocks


def cluster_agreement(embeddings: Embeddings, labels: Tensor, unit: bool, names: Sequence[str]) -> dict[str, float]:
    """Normalised (`nmi`) and adjusted (`ami`) mutual information of labels and clusters, with a fixed k-means seed."""
    try:
        from sklearn.cluster import KMeans  # type: ignore[import-untyped]
        from sklearn.metrics import (  # type: ignore[import-untyped]
            adjusted_mutual_info_score,
            normalized_mutual_info_score,
        )
    except ImportError as missing:
        raise InputError("nmi and ami need scikit-learn: pip install 'sumpool[cluster]'") from missing
    points = torch.cat([block.float() for _, block in blocks(embeddings)])
    if unit:
        points = torch.nn.functional.normalize(points)
    clusters = KMeans(len(labels.unique()), n_init=1, random_state=0).fit_predict(points.numpy())
    scores = {"nmi": normalized_mutual_info_score, "ami": adjusted_mutual_info_score}
    return {name: float(scores[name](labels.numpy(), clusters)) for name in names}
