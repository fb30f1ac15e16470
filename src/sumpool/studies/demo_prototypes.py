"""What the prototypes of a trained GSP stand for: the places of real images that they take most of."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from PIL import Image

from sumpool.explain import Explanation


class Prototype(NamedTuple):
    """A prototype: its number, its share of the weight of all images, and the patches it takes most of."""

    number: int
    share: float
    patches: list[Image.Image]


def best_patches(seen: Sequence[Explanation], prototypes: int, patches: int, side: int) -> list[Prototype]:
    """The prototypes with the largest shares, each with patches of `side` pixels from different images."""
    maps = torch.stack([one.prototypes for one in seen if one.prototypes is not None])
    shares = maps.sum((2, 3)).mean(0)
    peaks, places = maps.flatten(2).max(2)
    found = []
    for number in shares.topk(prototypes).indices.tolist():
        images = peaks[:, number].topk(patches).indices.tolist()
        cut = [patch(seen[row].image, int(places[row, number]), maps.shape[2:], side) for row in images]
        found.append(Prototype(number, float(shares[number]), cut))
    return found


def patch(image: Image.Image, place: int, grid: Sequence[int], side: int) -> Image.Image:
    """The square around a place of the grid, moved inside the image."""
    row, column = divmod(place, grid[1])
    left = min(max(round((column + 0.5) * image.width / grid[1] - side / 2), 0), image.width - side)
    top = min(max(round((row + 0.5) * image.height / grid[0] - side / 2), 0), image.height - side)
    return image.crop((left, top, left + side, top + side))
