"""Approximate search structures of FAISS: HNSW graphs and inverted files with product quantisation."""

import math
from typing import Any

import numpy as np
from torch import Tensor

from sumpool.errors import InputError

BACKENDS = ("exact", "hnsw", "ivfpq")


def require(backend: str, count: int) -> None:
    """Refuse a kind of search that is unknown, not installed or not possible for `count` images."""
    if backend not in BACKENDS:
        raise InputError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend != "exact":
        _faiss()
    if backend == "ivfpq" and count < 256:
        raise InputError(f"an IVF-PQ index needs at least 256 images to learn its codes, got {count}: use exact search")


def build(backend: str, points: Tensor, cosine: bool) -> Any:
    """A structure over the points (N,D): unit vectors by inner product, or others by distance."""
    count, dim = points.shape
    require(backend, count)
    faiss = _faiss()
    metric = faiss.METRIC_INNER_PRODUCT if cosine else faiss.METRIC_L2
    structure = faiss.index_factory(dim, "HNSW32" if backend == "hnsw" else _ivfpq(count, dim), metric)
    if backend == "hnsw":
        structure.hnsw.efConstruction, structure.hnsw.efSearch = 80, 64
    else:
        structure.nprobe = max(8, structure.nlist // 16)
    if not structure.is_trained:
        structure.train(points.numpy())
    structure.add(points.numpy())
    return structure


def _ivfpq(count: int, dim: int) -> str:
    """About 4√N lists and 4 dimensions per code; `np`: no polysemous training, which takes minutes."""
    lists = max(1, min(round(4 * math.sqrt(count)), count // 39))
    parts = max(part for part in range(1, max(1, dim // 4) + 1) if dim % part == 0)
    return f"IVF{lists},PQ{parts}np"


def shortlist(structure: Any, queries: Tensor, k: int) -> np.ndarray[Any, Any]:
    """Positions (Q,k) of probable neighbours, -1 where fewer were found."""
    found: np.ndarray[Any, Any] = structure.search(queries.numpy(), k)[1]
    return found


def serialise(structure: Any) -> bytes:
    """The structure as bytes."""
    return bytes(_faiss().serialize_index(structure))


def deserialise(content: bytes, count: int) -> Any:
    """The structure of `count` points from its bytes."""
    faiss = _faiss()
    try:
        structure = faiss.deserialize_index(np.frombuffer(content, dtype=np.uint8))
    except RuntimeError as broken:
        raise InputError("the approximate search structure of the index is damaged: index the images again") from broken
    if structure.ntotal != count:
        raise InputError(
            f"the search structure has {structure.ntotal} points, the index {count}: index the images again"
        )
    return structure


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as missing:
        raise InputError("hnsw and ivfpq need FAISS: pip install 'sumpool[faiss]', or use exact search") from missing
    return faiss
