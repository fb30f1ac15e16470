"""What the training step costs beyond the mathematics: ResNet-20, 64 images of 64×64, 128-D, float32.

"bare" is a plain PyTorch loop over the same batches with the same model, objective and optimizer; "ours" the package's
step (gradient clipping in both); "CCP" the same with proxies and the pull to the previous solution, against the plain
loss. Each pair takes turns; the ratio is that of the medians.

Aim: ours at most 2 % over bare, CCP at most 8 % over its plain loss (the thesis: 105 against 97 ms), GSP at most 3 %
over average pooling. GSP misses its aim here: beside so small a network (256 places of 64 channels an image) projection
and cost of every place show. With a ResNet-50 it is met, see the benchmark `step`.
"""

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.measure import all_threads, median_seconds, threads
from sumpool.backbones import create_backbone
from sumpool.embedder import Embedder
from sumpool.losses import create_objective
from sumpool.pooling import create_pooling
from sumpool.training.ccp import CCP
from sumpool.training.optimiser import parameter_groups
from sumpool.training.proxy_pool import Pool
from sumpool.training.step import Stepper
from sumpool.types import Batch

CLASSES, PER_CLASS, SIDE, DIM = 16, 4, 64, 128

Step = Callable[[], object]


def run() -> list[dict[str, object]]:
    rows = []
    with threads(all_threads()):
        for name, base, other in (
            ("ours / bare loop", _bare("gsp", "contrastive"), _ours("gsp", "contrastive")),
            ("GSP / GAP", _ours("gap", "contrastive"), _ours("gsp", "contrastive")),
            ("C2+CCP / C2", _ours("gap", "contrastive"), _ours("gap", "ccp/contrastive", pull=True)),
        ):
            seconds = median_seconds({"base": base, "other": other}, rounds=15)
            rows.append(
                {
                    "comparison": name,
                    "threads": all_threads(),
                    "base ms": f"{1e3 * seconds['base']:.1f}",
                    "other ms": f"{1e3 * seconds['other']:.1f}",
                    "ratio": f"{seconds['other'] / seconds['base']:.3f}",
                }
            )
    return rows


def _parts(pooling: str, loss: str) -> tuple[Embedder, nn.Module, torch.optim.Optimizer, Batch]:
    torch.manual_seed(0)
    backbone = create_backbone("resnet20", freeze_batchnorm=True)
    settings = {"memory": 0} if pooling == "gsp" else {}
    embedder = Embedder(backbone, create_pooling(pooling, backbone.out_features, DIM, **settings)).train()
    objective = create_objective(loss, classes=CLASSES, dim=DIM)
    optimizer = torch.optim.Adam(parameter_groups(embedder, objective, 1e-4), lr=1e-5)
    count = CLASSES * PER_CLASS
    batch = Batch(torch.randn(count, 3, SIDE, SIDE), torch.arange(count) // PER_CLASS, torch.arange(count))
    return embedder, objective, optimizer, batch


def _ours(pooling: str, loss: str, pull: bool = False) -> Step:
    embedder, objective, optimizer, batch = _parts(pooling, loss)
    stepper = Stepper(embedder, objective, optimizer, torch.device("cpu"), clip_norm=10.0)  # type: ignore[arg-type]
    adjust = None
    if pull:
        ccp = CCP(embedder, objective.proxies, optimizer, _no_pool, pool=1)  # type: ignore[arg-type]
        ccp.previous = {name: weight.detach().clone() for name, weight in ccp.trained.items()}
        adjust = ccp.adjust

    return lambda: stepper(batch, adjust)


def _no_pool(per_class: int, problem: int) -> Pool:
    raise AssertionError("steps inside a problem draw no pool")


def _bare(pooling: str, loss: str) -> Step:
    embedder, objective, optimizer, batch = _parts(pooling, loss)
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def step() -> None:
        optimizer.zero_grad()
        out = embedder(batch.images)
        objective(out.vector, batch.labels, out.attributes).total.backward()
        nn.utils.clip_grad_norm_(trained, 10.0)
        optimizer.step()

    return step
