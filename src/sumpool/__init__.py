"""sumpool: deep metric learning with generalized sum pooling.

Public names are imported on first use, so that ``sumpool --help`` does not wait for PyTorch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sumpool.embedder import Embedder
    from sumpool.pooling import GSP, create_pooling
    from sumpool.types import Pooled

__version__ = version("sumpool")
__all__ = ["GSP", "Embedder", "Pooled", "create_pooling"]

_HOME = {
    "Embedder": "sumpool.embedder",
    "GSP": "sumpool.pooling",
    "create_pooling": "sumpool.pooling",
    "Pooled": "sumpool.types",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sumpool' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
