"""Pooling: a set of local features in, one vector per image out."""

from collections.abc import Callable
from typing import Any

from sumpool.pooling.base import Pooling
from sumpool.pooling.gsp import GSP
from sumpool.registry import create

POOLINGS: dict[str, Callable[..., Pooling]] = {
    "gsp": GSP,
}

__all__ = ["GSP", "POOLINGS", "Pooling", "create_pooling"]


def create_pooling(name: str, in_features: int, dim: int | None = None, **settings: Any) -> Pooling:
    """Build a pooling by name with its own settings; `sumpool list poolings` shows the names."""
    return create("pooling", POOLINGS, name, in_features=in_features, dim=dim, **settings)
