"""The model as an ONNX file, for runtimes without PyTorch."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sumpool.errors import InputError

if TYPE_CHECKING:
    from sumpool.embedder.embedder import Embedder

NEEDED = ("onnx", "onnxscript")


class _Vector(nn.Module):
    """Only the embedding: the other results of a pooling may be None, which ONNX does not know."""

    def __init__(self, embedder: "Embedder") -> None:
        super().__init__()
        self.embedder = embedder

    def forward(self, images: Tensor) -> Tensor:
        vector: Tensor = self.embedder(images).vector
        return vector


def write_onnx(embedder: "Embedder", path: Path) -> None:
    """Export in evaluation mode; the file carries the preprocessing as metadata."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(f"ONNX export needs pip install 'sumpool[export]' (missing: {', '.join(missing)})")
    training = embedder.training
    program = _traced(_Vector(embedder).eval())
    embedder.train(training)
    preprocessing = json.dumps(asdict(embedder.backbone.preprocessing))
    program.model.metadata_props["sumpool.preprocessing"] = preprocessing
    path.parent.mkdir(parents=True, exist_ok=True)
    program.save(path)


def _traced(model: nn.Module) -> Any:
    """The ONNX program of a model whose batch and image size are free."""
    parameter = next(model.parameters())
    # Sizes that are all different and even: equal or odd ones could be taken for constants of the model.
    images = torch.zeros(2, 3, 96, 128, device=parameter.device, dtype=parameter.dtype)
    free = dict.fromkeys((0, 2, 3), torch.export.Dim.DYNAMIC)
    with quiet():
        return torch.onnx.export(
            model,
            (images,),
            dynamo=True,
            dynamic_shapes=(free,),
            input_names=["images"],
            output_names=["embedding"],
            verbose=False,
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Without the exporter's remarks about its own code and about packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)
