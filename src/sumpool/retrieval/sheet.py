"""A contact sheet: pictures side by side, below each the same with its weight map."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

SIDE, MARGIN, LINE = 160, 8, 14  # pixels: a picture, the space between two, a line of the caption


class Tile(NamedTuple):
    """One picture of the sheet."""

    picture: Image.Image
    weights: Tensor | None
    """(H,W) pooling weights over the picture, if the method has them."""
    caption: Sequence[str]


def contact_sheet(tiles: Sequence[Tile], columns: int = 6) -> Image.Image:
    """All tiles in rows of `columns`; weight maps are drawn if any tile has one."""
    maps = any(tile.weights is not None for tile in tiles)
    lines = max(len(tile.caption) for tile in tiles)
    width, height = SIDE + MARGIN, (1 + maps) * SIDE + lines * LINE + 2 * MARGIN
    across, down = min(columns, len(tiles)), -(-len(tiles) // columns)
    sheet = Image.new("RGB", (across * width + MARGIN, down * height + MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for place, tile in enumerate(tiles):
        x, y = MARGIN + place % columns * width, MARGIN + place // columns * height
        for number, line in enumerate(tile.caption):
            draw.text((x, y + number * LINE), _shortened(line, draw), fill="black")
        y += lines * LINE
        picture = tile.picture.convert("RGB").resize((SIDE, SIDE))
        sheet.paste(picture, (x, y))
        if tile.weights is not None:
            sheet.paste(heat(picture, tile.weights), (x, y + SIDE))
    return sheet


def heat(picture: Image.Image, weights: Tensor) -> Image.Image:
    """The picture darkened where the weights are small and red where they are large, relative to the largest."""
    share = (weights / weights.max().clamp(min=1e-12)).float().cpu().numpy()
    mask = Image.fromarray((255 * share).astype(np.uint8)).resize(picture.size, Image.Resampling.BILINEAR)
    dark = Image.blend(picture, Image.new("RGB", picture.size), 0.6)
    return Image.composite(Image.blend(picture, Image.new("RGB", picture.size, "red"), 0.5), dark, mask)


def _shortened(line: str, draw: ImageDraw.ImageDraw) -> str:
    """The end of a line that is too long: of a path it tells more than the beginning."""
    if draw.textlength(line) <= SIDE:
        return line
    while line and draw.textlength("…" + line) > SIDE:
        line = line[1:]
    return "…" + line
