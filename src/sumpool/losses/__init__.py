"""Losses: `loss(embeddings, labels)` → scalar, over the batch, a memory of past batches, or proxies.

The names are those of the GSP and CCP reference implementations where they have one: `original_contrastive` is C1,
`contrastive` is C2, `proxy_nca` is ProxyNCA++.
"""

from torch import nn

from sumpool.losses.base import PairLoss, Reference
from sumpool.losses.centres import (
    REGULARISERS,
    CentreRegulariser,
    FarPush,
    HypersphericalEnergy,
    NearestPush,
    SimilarityMean,
    UniformFace,
)
from sumpool.losses.chain import WRAPPERS, create_loss, create_objective
from sumpool.losses.circle import Circle
from sumpool.losses.contrastive import Contrastive
from sumpool.losses.external import External, Mined
from sumpool.losses.intra_batch import IntraBatch
from sumpool.losses.lifted_structure import LiftedStructure
from sumpool.losses.margin import Margin
from sumpool.losses.memory import Memory
from sumpool.losses.multi_similarity import MultiSimilarity
from sumpool.losses.n_pair import NPair
from sumpool.losses.normalized_softmax import NormalizedSoftmax
from sumpool.losses.objective import Objective, Outcome, Term
from sumpool.losses.original_contrastive import OriginalContrastive
from sumpool.losses.presets import PRESETS
from sumpool.losses.proxies import ClassProxies, Proxies, ProxyLoss
from sumpool.losses.proxy_anchor import ProxyAnchor
from sumpool.losses.proxy_nca import OriginalProxyNCA, ProxyNCA
from sumpool.losses.soft_triple import SoftTriple
from sumpool.losses.triplet import Triplet
from sumpool.losses.zero_shot import ZeroShotPrediction
from sumpool.ops.gather import gather

LOSSES: dict[str, type[nn.Module]] = {
    "original_contrastive": OriginalContrastive,
    "contrastive": Contrastive,
    "margin": Margin,
    "triplet": Triplet,
    "multi_similarity": MultiSimilarity,
    "n_pair": NPair,
    "lifted_structure": LiftedStructure,
    "circle": Circle,
    "proxy_nca": ProxyNCA,
    "original_proxy_nca": OriginalProxyNCA,
    "proxy_anchor": ProxyAnchor,
    "soft_triple": SoftTriple,
    "normalized_softmax": NormalizedSoftmax,
    "libc": IntraBatch,
}

__all__ = [
    "LOSSES",
    "PRESETS",
    "REGULARISERS",
    "WRAPPERS",
    "CentreRegulariser",
    "Circle",
    "ClassProxies",
    "Contrastive",
    "External",
    "FarPush",
    "HypersphericalEnergy",
    "IntraBatch",
    "LiftedStructure",
    "Margin",
    "Memory",
    "Mined",
    "MultiSimilarity",
    "NPair",
    "NearestPush",
    "NormalizedSoftmax",
    "Objective",
    "OriginalContrastive",
    "OriginalProxyNCA",
    "Outcome",
    "PairLoss",
    "Proxies",
    "ProxyAnchor",
    "ProxyLoss",
    "ProxyNCA",
    "Reference",
    "SimilarityMean",
    "SoftTriple",
    "Term",
    "Triplet",
    "UniformFace",
    "ZeroShotPrediction",
    "create_loss",
    "create_objective",
    "gather",
]
