"""Explain one image, or the similarity of two."""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sumpool.backbones import Backbone
from sumpool.data.image import naming, open_image
from sumpool.data.transforms import CentreCrop, to_tensor
from sumpool.errors import InputError
from sumpool.explain.shares import parts_of_sum, place_shares, prototype_parts, prototype_plan
from sumpool.pooling import Pooling
from sumpool.types import Pooled


class Model(Protocol):
    """What is asked of the model: the parts of an embedder."""

    backbone: Backbone
    pooling: Pooling

    def __call__(self, images: Tensor) -> Pooled:
        """The pooled result with its vector normalised."""

    training: bool

    def train(self, mode: bool) -> object:
        """Switch to training, or to evaluation."""

    def float(self) -> "Model":
        """Convert to float32."""


@dataclass(frozen=True)
class Explanation:
    """What one image's embedding was made from; maps are (h,w) grids over the image."""

    image: Image.Image
    """The part of the picture that the network saw."""
    weights: Tensor | None
    """(h,w) the pooling's weights, adding up to 1; None where the method has none."""
    shares: Tensor
    """(h,w) share of every place in the embedding: in ⟨v,v⟩/‖v‖², which is 1."""
    prototypes: Tensor | None
    """(M,h,w) what each prototype takes of each place; a map adds up to the prototype's attribute."""
    attributes: Tensor | None
    """(M,) share of every prototype."""


@dataclass(frozen=True)
class Pair:
    """What makes the similarity of two images, the inner product of their embeddings."""

    query: Image.Image
    result: Image.Image
    similarity: float
    query_shares: Tensor
    """(h,w) share of every place of the query in the similarity."""
    result_shares: Tensor
    """(h,w) the same for the result."""
    places: Tensor | None
    """(N,N′) share of every place of the query together with every place of the result; None if no weighted sum."""
    prototypes: Tensor | None
    """(M,M) the same for prototypes; None without them."""


@dataclass(frozen=True)
class _Seen:
    """One image on its way through the model."""

    image: Image.Image
    features: Tensor
    pooled: Pooled
    embedding: Tensor
    grid: tuple[int, int]

    @property
    def scale(self) -> Tensor:
        """What the normalisation multiplied the vector by."""
        before = torch.linalg.vector_norm(self.pooled.vector[0]).clamp_min(1e-12)
        scale: Tensor = torch.linalg.vector_norm(self.embedding) / before
        return scale


@torch.no_grad()
def explain(model: Model, picture: str | Path | Image.Image) -> Explanation:
    """Explain the embedding of a picture: weights, shares and prototypes on the image."""
    model = _precise(model)
    seen = _look(model, picture)
    pooling, vector = model.pooling, seen.pooled.vector[0]
    shares = place_shares(pooling, seen.features, seen.pooled, vector / vector.square().sum().clamp_min(1e-12))
    plan = prototype_plan(pooling, seen.features)
    weights = seen.pooled.weights
    return Explanation(
        image=seen.image,
        weights=None if weights is None else weights[0].reshape(seen.grid),
        shares=shares.reshape(seen.grid),
        prototypes=None if plan is None else plan.reshape(len(plan), *seen.grid),
        attributes=None if plan is None else plan.sum(1),
    )


@torch.no_grad()
def explain_pair(model: Model, query: str | Path | Image.Image, result: str | Path | Image.Image) -> Pair:
    """Explain the similarity of two pictures: which places and prototypes of either make it."""
    model = _precise(model)
    one, two = _look(model, query), _look(model, result)
    pooling = model.pooling
    shares = [
        place_shares(pooling, here.features, here.pooled, here.scale * there.embedding).reshape(here.grid)
        for here, there in ((one, two), (two, one))
    ]
    places = [parts_of_sum(pooling, seen.features, seen.pooled) for seen in (one, two)]
    prototypes = [prototype_parts(pooling, seen.features, seen.pooled) for seen in (one, two)]
    return Pair(
        query=one.image,
        result=two.image,
        similarity=float(one.embedding @ two.embedding),
        query_shares=shares[0],
        result_shares=shares[1],
        places=_products(places, one.scale * two.scale),
        prototypes=_products(prototypes, one.scale * two.scale),
    )


def _products(parts: list[Tensor | None], scale: Tensor) -> Tensor | None:
    """Inner products of the parts of two vectors, scaled; None where a vector has no such parts."""
    one, two = parts
    return None if one is None or two is None else scale * one @ two.T


def _precise(model: Model) -> Model:
    """The model itself, or a float32 copy of one in half precision, whose rounded shares would not add up."""
    half = next(model.backbone.parameters()).dtype in (torch.float16, torch.bfloat16)
    return deepcopy(model).float() if half else model


def _look(model: Model, picture: str | Path | Image.Image) -> _Seen:
    """Prepare a picture as the backbone wants it and run the model on it, in evaluation."""
    preprocessing = model.backbone.preprocessing
    title = "in memory" if isinstance(picture, Image.Image) else str(picture)
    with naming(title):
        opened = picture if isinstance(picture, Image.Image) else open_image(Path(picture))
        shown = CentreCrop(preprocessing).pixels(opened, np.random.default_rng(0))
    parameter = next(model.backbone.parameters())
    images = to_tensor(shown, preprocessing)[None].to(parameter.device, parameter.dtype)
    training = model.training
    model.train(False)
    try:
        features = model.backbone(images)
        pooled = model.pooling(features)
        embedding = model(images).vector[0]
    finally:
        model.train(training)
    count = features.shape[1] if features.dim() == 3 else features.shape[2] * features.shape[3]
    return _Seen(shown, features, pooled, embedding, pooled.grid or _square(count))


def _square(count: int) -> tuple[int, int]:
    """The grid of tokens, which the square crop makes square."""
    side = round(count**0.5)
    if side * side != count:
        raise InputError(f"{count} tokens of a square image do not form a square grid, so they cannot be drawn on it")
    return side, side
