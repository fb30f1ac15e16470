r"""Chance-constrained programming (CCP): metric learning as a sequence of proxy problems, whatever the pair loss.

Problem k minimises over the weights θ and K proxies per class, which start as embeddings of real images,

.. math:: L(\text{batch}, \text{proxies}) + \tfrac\lambda2 \lVert\theta - \theta^{(k-1)}\rVert^2,

with λ = 0 in the first problem. When the validation score has stopped improving, :math:`\theta^{(k)}` is the best θ of
the problem, and the next one begins where training is, with proxies newly picked by greedy k-center: per class, from a
pool of b augmented images, with the problem's best proxies as the initial cover.

Gürbüz, Can, Alatan, *Deep metric learning with chance constraints*, WACV 2024.

Shape letters: C classes, P images of a class' pool, K proxies per class, D dimensions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sumpool.data import Dataset
from sumpool.embedder import Embedder
from sumpool.embedder.normalisation import NORMALISATIONS
from sumpool.errors import InputError
from sumpool.losses import ClassProxies, Objective
from sumpool.ops.k_center import greedy_k_center
from sumpool.registry import check_settings, lookup
from sumpool.training.config import TrainConfig
from sumpool.training.processes import shared
from sumpool.training.proxy_pool import Pool, embed_pool

POOLS = {"cub": 12, "cars": 12, "inshop": 7, "sop": 7}


class Selection(NamedTuple):
    """Proxies picked from a pool, and how well it is covered: mean over the classes of the covering radius."""

    points: Tensor
    """(C, K, D)"""
    before: float
    """Radius by the initial cover alone."""
    after: float
    """Radius by the cover and the picked points, never larger than `before`."""


def select(pool: Pool, count: int, cover_CKD: Tensor) -> Selection:
    """Pick `count` points of every class by greedy k-center, farthest from the cover first."""
    picked = greedy_k_center(pool.points, count, cover_CKD, pool.mask)
    index_CKD = picked.indices.unsqueeze(2).expand(-1, -1, pool.points.shape[2])
    gap_CP = torch.cdist(pool.points, cover_CKD).amin(2).masked_fill(~pool.mask, 0)
    return Selection(pool.points.gather(1, index_CKD), float(gap_CP.amax(1).mean()), float(picked.radius.mean()))


class CCP:
    """The alternation of problems during a run; the loop calls `begin`, `adjust` and `validated`.

    Args:
        embedder: whose trained weights are pulled.
        proxies: of the objective, overwritten when a problem begins.
        optimizer: that trains both.
        draw: `draw(images per class, problem)` embeds a pool.
        pull: λ.
        patience: validations without improvement after which a problem has converged.
        min_delta: smallest improvement of the score that counts.
        pool: b, at least K; 1 or less takes K random images instead of selecting among b.
    """

    def __init__(
        self,
        embedder: Embedder,
        proxies: ClassProxies,
        optimizer: torch.optim.Optimizer,
        draw: Callable[[int, int], Pool],
        *,
        pull: float = 2e-4,
        patience: int = 3,
        min_delta: float = 1e-5,
        pool: int = 12,
    ) -> None:
        if pull < 0 or patience < 1 or min_delta < 0:
            raise InputError(f"ccp expects pull ≥ 0, patience ≥ 1, min_delta ≥ 0, got {pull}, {patience}, {min_delta}")
        self.per_class = proxies.vectors.shape[1]
        if 1 < pool < self.per_class:
            raise InputError(f"a pool needs at least the {self.per_class} images to pick (1 for random), got {pool}")
        self.proxies, self.optimizer, self.draw = proxies, optimizer, draw
        self.pull, self.patience, self.min_delta, self.pool = pull, patience, min_delta, pool
        self.normalize = NORMALISATIONS[embedder.normalize]
        self.trained = {name: weight for name, weight in embedder.named_parameters() if weight.requires_grad}
        self.problem = self.start = self.stale = 0
        self.best_score = -float("inf")
        self.best: dict[str, Tensor] = {}
        self.previous: dict[str, Tensor] = {}
        self.cover = proxies.vectors.detach().clone()
        self.radius: dict[str, float] = {}

    def begin(self, step: int) -> None:
        """Start the next problem after `step` steps, with new proxies."""
        self.problem, self.start = self.problem + 1, step
        self.stale, self.best_score = 0, -float("inf")
        self.proxies.reset(shared(self.pick().to(self.proxies.vectors)))
        # Adam's moments describe the gradients of the vectors that were replaced: kept, they would drag each new proxy
        # along the path of an unrelated old one. The weights carry on from where they are, and so do their moments.
        self.optimizer.state.pop(self.proxies.vectors, None)

    def pick(self) -> Tensor:
        """New proxies (C,K,D); the covering radius is noted where they were selected, not drawn at random."""
        if self.pool <= 1:
            return self.draw(self.per_class, self.problem).filled()
        # Proxies are trained at any length; the pool is compared with them as the embedder would normalise them.
        pool = self.draw(self.pool, self.problem)
        chosen = select(pool, self.per_class, self.normalize(self.cover).to(pool.points))
        self.radius = {"covering radius before": chosen.before, "covering radius after": chosen.after}
        return chosen.points

    @torch.no_grad()
    def adjust(self) -> None:
        """Add λ(θ − θ of the previous solution) to the gradient; nothing in the first problem."""
        for name, previous in self.previous.items():
            weight = self.trained[name]
            if weight.grad is not None:
                weight.grad.add_(weight - previous, alpha=self.pull)

    def validated(self, score: float, model: nn.Module, step: int) -> None:
        """Take the score of a model into account: keep the problem's best, or go on to the next problem."""
        improved = score > self.best_score + self.min_delta
        self.stale = 0 if improved else self.stale + 1
        if improved:
            self.best_score, self.cover = score, self.proxies.vectors.detach().clone()
            self.best = {name: w.detach().clone() for name, w in model.named_parameters() if name in self.trained}
        elif self.stale >= self.patience:
            self.previous = self.best
            self.begin(step)

    def diagnostics(self, step: int) -> dict[str, float]:
        """Which problem this is, its steps so far, and how its proxies cover the classes."""
        return {"problem": self.problem, "problem steps": step - self.start, **self.radius}

    def state_dict(self) -> dict[str, Any]:
        """Everything the rest of the run depends on."""
        counts = {"problem": self.problem, "start": self.start, "stale": self.stale, "best_score": self.best_score}
        return {**counts, "radius": self.radius, "best": self.best, "previous": self.previous, "cover": self.cover}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue there."""
        self.problem, self.start, self.stale = state["problem"], state["start"], state["stale"]
        self.best_score, self.radius = state["best_score"], state["radius"]
        self.best, self.previous = (self._placed(state[name]) for name in ("best", "previous"))
        self.cover = state["cover"].to(self.proxies.vectors.device)

    def _placed(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: weight.to(self.trained[name].device) for name, weight in weights.items()}


def create_ccp(
    config: TrainConfig, embedder: Embedder, objective: Objective, optimizer: torch.optim.Optimizer, train: Dataset
) -> CCP | None:
    """The alternation that a configuration asks for; None without ccp in its chain of losses."""
    if "ccp" not in config.loss.split("/"):
        return None
    preset = {"pool": lookup("preset", POOLS, config.preset)} if config.preset else {}
    assert objective.proxies is not None
    draw = partial(embed_pool, embedder, train, seed=config.seed + 1, workers=config.readers, bad=config.bad_images)
    build = partial(CCP, embedder, objective.proxies, optimizer, draw)
    check_settings("ccp", build, config.ccp_settings)
    return build(**preset | config.ccp_settings)
