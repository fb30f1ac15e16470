"""Retrieval metrics (P@1, P@R, MAP@R, R@1, 2, 4, 8), exact, at the sizes of the test sets of CUB, SOP and In-shop.

Compared in one run, taking turns, on the same class-clustered embeddings: the bare float32 matrix product of the same
size in tiles of 1024×1024, none kept; this package; pytorch-metric-learning's `AccuracyCalculator` with FAISS (P@1,
P@R, MAP@R); and FAISS' flat search for R neighbours, which scores nothing. Peak memory is that of a fresh process
that makes the embeddings and scores them, PyTorch included. 60,502 runs once, the others three times (median).

Aim: within 1.3× of the bare product, at least 1.5× faster than pytorch-metric-learning, under 1 GB at 60,502.

SOP meets all three: a set against itself needs half of the product, and with few positives the rest is one pass over
the tiles. In-shop has no such half: its limit is the product, to which one pass, the float64 scores of the positives
and some two dozen small operations per tile are added, which gain little from a second thread: 1.2 to 1.7 products. At
D = 512 the whole of pytorch-metric-learning takes 1.3 to 1.8 products, so that being 1.5× faster would leave at most
1.2. CUB misses both aims: with 58 positives per query the nearest 58 of 5,924 scores are selected and ordered, three
passes over scores that cost only 128 multiplications each, partly in NumPy on one thread. It takes 0.2 s.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import faiss
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator  # type: ignore[import-untyped]
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.measure import all_threads, threads
from sumpool.retrieval import retrieval_metrics

TILE = 1024


class Size(NamedTuple):
    """A test set."""

    name: str
    queries: int
    gallery: int
    """0: the queries among themselves."""
    dim: int
    classes: int
    noise: float
    """Spread of a class relative to that of the class centres: sets the difficulty."""


SIZES = [
    Size("CUB", 5924, 0, 128, 100, 2.0),
    Size("SOP", 60502, 0, 128, 12100, 1.4),
    Size("SOP", 60502, 0, 512, 12100, 2.1),
    Size("In-shop", 14218, 12612, 128, 3985, 1.4),
    Size("In-shop", 14218, 12612, 512, 3985, 2.1),
]


def embeddings(size: Size) -> tuple[Tensor, ...]:
    """Unit embeddings and labels of the queries, and of the gallery if there is one."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(size.classes, size.dim, generator=generator)
    sides: list[Tensor] = []
    for count in filter(None, (size.queries, size.gallery)):
        labels = torch.arange(count) * size.classes // count
        x = torch.randn(count, size.dim, generator=generator).mul_(size.noise).add_(centres[labels])
        sides += [normalize(x, out=x), labels]
    return tuple(sides)


def product(queries: Tensor, gallery: Tensor) -> None:
    """Every entry of the product once, none kept."""
    tile = torch.empty(TILE, TILE)
    for rows in queries.split(TILE):
        for columns in gallery.split(TILE):
            torch.mm(rows, columns.T, out=tile[: len(rows), : len(columns)])


def candidates(sides: tuple[Tensor, ...]) -> dict[str, Callable[[], object]]:
    queries, gallery = sides[0], sides[-2]
    positives = int(torch.bincount(sides[-1]).max()) - (len(sides) == 2)
    include = ("precision_at_1", "r_precision", "mean_average_precision_at_r")

    def flat() -> object:
        index = faiss.IndexFlatIP(queries.shape[1])
        index.add(gallery.numpy())
        return index.search(queries.numpy(), positives + (len(sides) == 2))

    return {
        "product": lambda: product(queries, gallery),
        "sumpool": lambda: retrieval_metrics(*sides),
        "pml": lambda: AccuracyCalculator(include=include, k="max_bin_count").get_accuracy(*sides),
        "faiss": flat,
    }


def run() -> list[dict[str, object]]:
    rows = []
    for size in SIZES:
        huge = size.queries * (size.gallery or size.queries) * size.dim > 10**12
        sides = embeddings(size)
        for count in [all_threads()] if huge else sorted({1, all_threads()}):
            with threads(count):
                faiss.omp_set_num_threads(count)
                seconds, results = measured(candidates(sides), rounds=1 if size.queries > 50000 else 3)
            rows.append(row(size, count, seconds, results))
            print(rows[-1], flush=True)
    return rows


def measured(compared: Mapping[str, Callable[[], object]], rounds: int) -> tuple[dict[str, float], dict[str, object]]:
    """Median seconds and results of every candidate, which take turns."""
    times: dict[str, list[float]] = {name: [] for name in compared}
    results: dict[str, object] = {}
    for _ in range(rounds):
        for name, candidate in compared.items():
            start = time.perf_counter()
            results[name] = candidate()
            times[name].append(time.perf_counter() - start)
    return {name: sorted(values)[len(values) // 2] for name, values in times.items()}, results


def row(size: Size, count: int, seconds: dict[str, float], results: dict[str, object]) -> dict[str, object]:
    ours, theirs = results["sumpool"], results["pml"]
    assert isinstance(ours, dict)
    assert isinstance(theirs, dict)
    difference = max(
        abs(ours[mine] - theirs[name])
        for mine, name in {
            "p@1": "precision_at_1",
            "p@r": "r_precision",
            "map@r": "mean_average_precision_at_r",
        }.items()
    )
    return {
        "set": size.name,
        "size": f"{size.queries:,} × {size.gallery or size.queries:,}",
        "D": size.dim,
        "threads": count,
        "P@1": f"{ours['p@1']:.3f}",
        "product s": f"{seconds['product']:.3g}",
        "sumpool s": f"{seconds['sumpool']:.3g}",
        "PML s": f"{seconds['pml']:.3g}",
        "FAISS flat s": f"{seconds['faiss']:.3g}",
        "sumpool/product": f"{seconds['sumpool'] / seconds['product']:.2f}",
        "PML/sumpool": f"{seconds['pml'] / seconds['sumpool']:.2f}",
        "largest difference to PML": f"{difference:.0e}",
        "peak memory MB": f"{peak_megabytes(size):.0f}",
    }


@cache
def peak_megabytes(size: Size) -> float:
    """Peak resident memory of a process of its own."""
    script = f"from benchmarks import retrieval; retrieval.report_peak({SIZES.index(size)})"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return float(done.stdout)


def report_peak(number: int) -> None:
    """Score a size and print the peak memory of this process in MB."""
    retrieval_metrics(*embeddings(SIZES[number]))
    # Not ru_maxrss: on Linux a new program inherits there the memory of the process that started it.
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) / 1024)
