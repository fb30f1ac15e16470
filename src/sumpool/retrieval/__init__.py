"""Embeddings → neighbours → numbers: exact retrieval metrics, geometry diagnostics, and a searchable index."""

from sumpool.retrieval.metrics import Metrics, retrieval_metrics

__all__ = ["Metrics", "retrieval_metrics"]
