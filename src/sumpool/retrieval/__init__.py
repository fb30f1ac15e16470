"""Embeddings → neighbours → numbers: exact retrieval metrics, geometry diagnostics, and a searchable index."""

from sumpool.retrieval.geometry import ClassGeometry, Spectrum, class_geometry, spectrum
from sumpool.retrieval.hulls import hull_overlap
from sumpool.retrieval.index import Hits, Index
from sumpool.retrieval.metrics import Metrics, retrieval_metrics
from sumpool.retrieval.threshold import match_threshold

__all__ = [
    "ClassGeometry",
    "Hits",
    "Index",
    "Metrics",
    "Spectrum",
    "class_geometry",
    "hull_overlap",
    "match_threshold",
    "retrieval_metrics",
    "spectrum",
]
