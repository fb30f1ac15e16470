"""Every pooling, forward and backward, against GAP+linear and against its textbook code.

Map and all parameters receive gradients; float32, all cores. "× GAP" is the time in units of GAP+linear (mean, then
`linear`), which takes turns with every pooling: the unit is the median of all its times at a size. "× textbook" is how
many times faster than the straightforward code of `benchmarks/textbook.py`, which is checked to give the same vectors
(up to a factor per image) before it is timed. Only the vector receives a gradient, except that the attributes of
`gap_attributes` are computed on both sides. GSP's textbook is the published layer: 100 steps, closed-form gradient.

Aim: none slower than its textbook code. On a shared machine a row of a few milliseconds moves by a fifth between runs,
so a ratio a little below 1 is noise where both sides do the same. GAP's gradient stays an expanded view, which the
operation before it reads; its textbook writes it out. What bounds it: writing the gradient of the map (GMP, LSE) and
the matrix products (DeLF, GSoP, SOLAR, WELDON, GSP) are the same on both sides, so the ratio is near 1 there; the
gains are where a pass over the map is saved.
"""

from collections.abc import Callable, Sequence
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import all_threads, median_seconds, threads
from benchmarks.textbook import TEXTBOOK
from sumpool.pooling import POOLINGS, Pooling, create_pooling

SIZES = {(32, 1024, 7, 7): (128, 15), (112, 2048, 7, 7): (512, 5)}  # map → (dim, rounds)


def run() -> list[dict[str, object]]:
    with threads(all_threads()):
        return [row for size, (dim, rounds) in SIZES.items() for row in _rows(size, dim, rounds)]


def _rows(size: tuple[int, int, int, int], dim: int, rounds: int) -> list[dict[str, object]]:
    measured = {name: _seconds(name, size, dim, rounds) for name in POOLINGS}
    baseline = median(seconds["gap"] for seconds in measured.values())
    return [
        {
            "map → dim": f"{'×'.join(map(str, size))} → {dim}",
            "pooling": name,
            "ms": f"{1e3 * seconds['ours']:.1f}",
            "× GAP": f"{seconds['ours'] / baseline:.2f}",
            "× textbook": f"{seconds['textbook'] / seconds['ours']:.2f}",
        }
        for name, seconds in measured.items()
    ]


def _seconds(name: str, size: tuple[int, int, int, int], dim: int, rounds: int) -> dict[str, float]:
    torch.manual_seed(0)
    memory = {"memory": 0} if "memory" in create_pooling(name, 16, 16).settings else {}
    pool = create_pooling(name, size[1], dim, **memory)
    features = torch.randn(size).relu().requires_grad_()  # what a backbone ends with
    matrix = torch.randn(dim, size[1], requires_grad=True)
    _check_equal(name, pool, features.detach())
    parameters = list(pool.parameters())
    return median_seconds(
        {
            "gap": _task(lambda x: F.linear(x.mean((2, 3)), matrix), features, [matrix]),
            "ours": _task(lambda x: pool(x).vector, features, parameters),
            "textbook": _task(lambda x: TEXTBOOK[name](x, pool), features, parameters),
        },
        rounds,
    )


def _task(forward: Callable[[Tensor], Tensor], features: Tensor, parameters: Sequence[Tensor]) -> Callable[[], object]:
    upstream = torch.randn_like(forward(features[:1].detach())).expand(len(features), -1)
    return lambda: torch.autograd.grad(forward(features), [features, *parameters], upstream, allow_unused=True)


def _check_equal(name: str, pool: Pooling, features: Tensor) -> None:
    """The same directions; the cells of GSoP, whose textbook resampling has whole-pixel bins, differ a little."""
    with torch.no_grad():
        cosine = F.cosine_similarity(pool(features[:4]).vector, TEXTBOOK[name](features[:4], pool))
    assert cosine.min() > 0.999, f"{name}: the textbook's vectors differ, cosine {cosine.min():.4f}"
