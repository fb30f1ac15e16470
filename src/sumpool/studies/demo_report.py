"""The demo's report: one page, for somebody who has never heard of pooling."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from PIL import Image
from torch import Tensor

from sumpool.data import Dataset
from sumpool.data.record import Box
from sumpool.data.sets.glyphs import TILE
from sumpool.embedder import Embedder
from sumpool.evaluation.report import Number, figure, page, table
from sumpool.evaluation.report.examples import example_rows, examples
from sumpool.evaluation.trial import Embedded
from sumpool.explain import Explanation, explain
from sumpool.retrieval.sheet import heat
from sumpool.studies.demo_prototypes import best_patches
from sumpool.studies.demo_search import label
from sumpool.training.curves import Line, curves
from sumpool.training.run import BEST, Run

METRICS = {"map@r": "MAP@R", "p@r": "P@R", "p@1": "P@1"}
MAPS, EXAMPLES, LOOKED_AT = 9, 4, 200
PROTOTYPES, PATCHES = 6, 4
SIDE = 200  # pixels of a picture


def report(
    results: Mapping[str, Any],
    folders: Mapping[str, Sequence[Path]],
    runs: Mapping[str, Sequence[Embedded]],
    test: Dataset,
) -> str:
    """The page; its pictures show the first seed of each method, and images at equal distances through the test set."""
    embedders = {name: Embedder.load(some[0] / BEST) for name, some in folders.items()}
    seen = {row: explain(embedders["GSP"], test.image(row)) for row in example_rows(test, LOOKED_AT)}
    sections = [
        introduction(len(folders["GSP"])),
        scores(results),
        looks(seen, test),
        "<h2>What is found for an image</h2>",
        "<p>The nearest images of some queries; those with a solid green frame show the same letter.</p>",
        *(f"<h3>{name}</h3>{found(embedders[name], test, runs[name][0].vectors)}" for name in ("GSP", "GAP")),
        prototypes(list(seen.values())),
        training(folders),
    ]
    return page("GSP finds what matters", sections)


def introduction(seeds: int) -> str:
    """What was done, in plain words."""
    return f"""<p>Every image is a collage of four tiles. One shows a letter, the class of the image; the other three
show symbols that say nothing about it. A network turns an image into a 7×7 grid of local features, and <em>pooling</em>
makes one vector of them: the fingerprint by which images are compared. <strong>GAP</strong>, the usual choice, averages
the whole grid, symbols included. <strong>GSP</strong> learns which local features to keep.</p>
<p>Both start from the same network, which has learned single letters and symbols, and are trained {seeds} times each,
with the same images, loss, batches, steps and learning rate; GSP adds its zero-shot loss. The scores are those of
letters, among symbols, that no training has seen.</p>"""


def scores(results: Mapping[str, Any]) -> str:
    """The table, in points."""
    names = {"GAP": "GAP", "GSP": "GSP", "difference": "GSP − GAP"}
    rows = [
        {"method": shown} | {METRICS[metric]: points(results[name][metric]) for metric in METRICS}
        for name, shown in names.items()
    ]
    caption = "Of 100; below, the 95\u00a0% interval over trainings and classes."
    return (
        f"<h2>Scores on unseen letters</h2>{table(rows, caption, sortable=False)}"
        "<p>With R other images of the query's letter: P@R is the share of them among the nearest R images, MAP@R also "
        "asks that they come first, and P@1 is how often the nearest image is right.</p>"
    )


def points(value: Mapping[str, Any]) -> Number:
    """A mean with its interval."""
    low, high = value["ci95"]
    return Number(value["mean"], f"{100 * value['mean']:.1f}", f"{100 * low:.1f} to {100 * high:.1f}")


def looks(seen: Mapping[int, Explanation], test: Dataset) -> str:
    """Images of unseen classes beside their weight maps."""
    shares = {row: weight_inside(one, test.records[row].box) for row, one in seen.items()}
    rows = list(seen)[:: max(len(seen) // MAPS, 1)][:MAPS]
    cells = [
        figure(
            png(looked_at(seen[row])),
            f"{label(test, row)}: {100 * shares[row]:.0f}\u00a0% of the weight on its quarter",
        )
        for row in rows
    ]
    return (
        "<h2>Where GSP looks</h2><p>Left an image, right the same with its weights: red is kept, dark is left out. In "
        f"{len(shares)} images, the letter's quarter gets {100 * mean(shares.values()):.0f}\u00a0% of the weight on "
        f'average; GAP gives it 25\u00a0%.</p><div class="grid">{"".join(cells)}</div>'
    )


def weight_inside(seen: Explanation, box: Box | None) -> float:
    """The share of the weight that lies in a box; a place on its edge belongs to it by the part that is inside."""
    assert seen.weights is not None
    assert box is not None
    down, across = seen.image.height // seen.weights.shape[0], seen.image.width // seen.weights.shape[1]
    pixels = seen.weights.repeat_interleave(down, 0).repeat_interleave(across, 1) / (down * across)
    left, top, right, bottom = (int(edge) for edge in box)
    return float(pixels[top:bottom, left:right].sum())


def looked_at(seen: Explanation) -> Image.Image:
    """The image and its weight map."""
    assert seen.weights is not None
    picture = seen.image.convert("RGB").resize((SIDE, SIDE))
    return strip([picture, heat(picture, seen.weights)])


def found(embedder: Embedder, test: Dataset, vectors: Tensor) -> str:
    """Queries with their nearest images."""
    return examples(embedder, test, vectors, example_rows(test, EXAMPLES))


def prototypes(seen: Sequence[Explanation]) -> str:
    """The strongest prototypes, each as a row of the patches it takes most of."""
    cells = [
        figure(png(strip(one.patches)), f"prototype {one.number}, {100 * one.share:.0f}\u00a0% of the weight")
        for one in best_patches(seen, PROTOTYPES, PATCHES, TILE)
    ]
    return (
        "<h2>What the prototypes stand for</h2><p>GSP keeps what is close to learned prototypes. These have most of "
        "the weight; each is shown as the places of unseen images that it takes most of.</p>"
        f'<div class="grid">{"".join(cells)}</div>'
    )


def training(folders: Mapping[str, Sequence[Path]]) -> str:
    """The score on the validation classes during the trainings."""
    figures = [
        curves(
            f"{name}: MAP@R on the validation classes",
            [Line([(entry["step"], entry["map@r"]) for entry in Run(folder).entries()]) for folder in some],
        )
        for name, some in folders.items()
    ]
    return f'<h2>How they learned</h2><div class="grid">{"".join(figures)}</div>'


def strip(pictures: Sequence[Image.Image]) -> Image.Image:
    """Pictures side by side, `SIDE` pixels each."""
    whole = Image.new("RGB", (len(pictures) * SIDE, SIDE))
    for place, picture in enumerate(pictures):
        whole.paste(picture.convert("RGB").resize((SIDE, SIDE)), (place * SIDE, 0))
    return whole


def png(picture: Image.Image) -> bytes:
    """The file of a picture."""
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
