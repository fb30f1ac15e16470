"""GSP instead of average pooling in a whole training step: ResNet-50, 227×227 images, batch 32, 128-D, float32.

A step is forward, contrastive loss, backward and Adam. "step" compares whole steps, which take turns; "head" measures
what differs between them alone (pooling forward and backward on the backbone's map) and states its difference as a part
of the step, which noise does not drown.

Aim: at most 3 % slower.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.measure import all_threads, median_seconds, threads
from sumpool.backbones import create_backbone
from sumpool.losses import Contrastive
from sumpool.pooling import create_pooling

BATCH, SIDE = 32, 227


def run() -> list[dict[str, object]]:
    torch.manual_seed(0)
    images, labels = torch.randn(BATCH, 3, SIDE, SIDE), torch.arange(BATCH) // 4
    with threads(all_threads()):
        steps = {name: _step(name, images, labels) for name in ("gap", "gsp")}
        whole = median_seconds(steps, rounds=5)
        head = median_seconds({name: _head(name) for name in ("gap", "gsp")}, rounds=30)
    return [
        {
            "threads": all_threads(),
            "step with GAP s": f"{whole['gap']:.2f}",
            "step with GSP s": f"{whole['gsp']:.2f}",
            "GSP/GAP, whole steps": f"{whole['gsp'] / whole['gap']:.3f}",
            "head GAP ms": f"{1e3 * head['gap']:.2f}",
            "head GSP ms": f"{1e3 * head['gsp']:.2f}",
            "head difference, part of a step": f"{(head['gsp'] - head['gap']) / whole['gap']:.2%}",
        }
    ]


def _step(pooling: str, images: Tensor, labels: Tensor) -> Callable[[], object]:
    backbone = create_backbone("resnet50")
    pool = create_pooling(pooling, in_features=backbone.out_features, dim=128)
    loss = Contrastive()
    optimizer = torch.optim.Adam(nn.ModuleList([backbone, pool]).parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad()
        vectors = nn.functional.normalize(pool(backbone(images)).vector)
        loss(vectors, labels).backward()
        optimizer.step()

    return step


def _head(pooling: str) -> Callable[[], object]:
    features = torch.randn(BATCH, 2048, 8, 8, requires_grad=True)
    pool = create_pooling(pooling, in_features=2048, dim=128)
    upstream = torch.randn(BATCH, 128)
    parameters = [features, *pool.parameters()]
    return lambda: torch.autograd.grad(pool(features).vector, parameters, upstream, allow_unused=True)
