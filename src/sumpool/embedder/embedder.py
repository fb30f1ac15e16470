"""The model people keep: backbone, pooling, normalisation."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sumpool.backbones import Backbone
from sumpool.backbones.weights import load_weights
from sumpool.embedder import storage
from sumpool.embedder.files import batches_of_files
from sumpool.embedder.normalisation import NORMALISATIONS
from sumpool.embedder.onnx_model import write_onnx
from sumpool.errors import InputError
from sumpool.pooling import Pooling
from sumpool.registry import lookup
from sumpool.types import Pooled


class Embedder(nn.Module):
    """Images in, embeddings out: `backbone` → `pooling` → normalisation.

    `normalize` is "unit" (v/‖v‖), "lipschitz" (v/max(1, ‖v‖)) or "none". For half precision convert the whole model,
    `embedder.to(torch.bfloat16)`; `embed` and `embed_files` take and return float32 all the same.

    >>> from sumpool.backbones import create_backbone
    >>> from sumpool.pooling import create_pooling
    >>> embedder = Embedder(create_backbone("tiny"), create_pooling("gsp", in_features=32, dim=16, prototypes=4))
    >>> embedder.embed(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 16])
    """

    def __init__(self, backbone: Backbone, pooling: Pooling, normalize: str = "unit") -> None:
        super().__init__()
        if pooling.in_features != backbone.out_features:
            raise InputError(
                f"the pooling was built for {pooling.in_features} channels, the backbone gives {backbone.out_features}"
            )
        lookup("normalisation", NORMALISATIONS, normalize)
        self.backbone = backbone
        self.pooling = pooling
        self.normalize = normalize

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.pooling.out_features

    @property
    def distance(self) -> Literal["cosine", "euclidean"]:
        """How embeddings are compared: a norm that keeps lengths keeps them so that they count."""
        return "cosine" if self.normalize == "unit" else "euclidean"

    def forward(self, images: Tensor, mask: Tensor | None = None) -> Pooled:
        """Embed prepared images (B,3,H,W); `mask` is True where a local feature counts."""
        return self.pool(self.backbone(images), mask)

    def pool(self, features: Tensor, mask: Tensor | None = None) -> Pooled:
        """Embed local features, as the backbone gives them."""
        pooled: Pooled = self.pooling(features, mask)
        return pooled._replace(vector=NORMALISATIONS[self.normalize](pooled.vector))

    def embed(self, images: Tensor) -> Tensor:
        """Embeddings (B,D) of prepared images as float32 on the CPU, without gradients and in evaluation mode."""
        parameter = next(self.parameters())
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                vector: Tensor = self(images.to(parameter.device, parameter.dtype)).vector
        finally:
            self.train(training)
        return vector.float().cpu()

    def embed_files(self, paths: Sequence[str | Path], batch_size: int = 32, progress: bool = True) -> Tensor:
        """Embeddings (N,D), float32 on the CPU, of image files, prepared as the backbone wants them."""
        batches = batches_of_files(paths, self.backbone.preprocessing, batch_size, progress)
        return torch.cat([self.embed(images) for images in batches]) if paths else torch.empty(0, self.dim)

    @property
    def config(self) -> dict[str, Any]:
        """Everything but the weights, as JSON holds it: `Embedder.load` rebuilds the model from it."""
        return {
            "backbone": storage.backbone_config(self.backbone),
            "preprocessing": asdict(self.backbone.preprocessing),
            "pooling": storage.pooling_config(self.pooling),
            "normalize": self.normalize,
        }

    def fingerprint(self) -> str:
        """64 hexadecimal digits that change when a weight or a setting changes."""
        return storage.fingerprint(self.config, self.state_dict())

    def save(self, folder: str | Path) -> None:
        """Write `config.json`, `model.safetensors` and a model card: the layout of the Hugging Face hub."""
        storage.save(self, Path(folder))

    @classmethod
    def load(cls, source: str | Path) -> "Embedder":
        """The model of a folder that `save` wrote, or of a Hugging Face hub repository `owner/name`."""
        folder = storage.find(source)
        config = storage.read_config(folder)
        try:
            embedder = cls(*storage.rebuild(config))
        except (TypeError, KeyError, AttributeError) as reason:
            raise InputError(f"{folder / storage.CONFIG} does not describe an embedder: {reason!r}") from reason
        load_weights(embedder, folder / storage.WEIGHTS)
        return embedder.eval()

    def to_onnx(self, path: str | Path) -> None:
        """Write the model as ONNX with input `images` (batch and image size free) and output `embedding`."""
        write_onnx(self, Path(path))
