"""Embedder: a backbone, a pooling and a normalisation as one model that can be saved, shared and exported."""

from sumpool.embedder.embedder import Embedder
from sumpool.embedder.normalisation import NORMALISATIONS

__all__ = ["NORMALISATIONS", "Embedder"]
