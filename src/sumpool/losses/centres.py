r"""Regularisers of class centres: keep the proxies of a proxy loss apart on the sphere.

The similarity-based R1 and R2 and the energies let the *nearest* centres push; far-push, the skewed mean of the
distances, lets the *farthest* pairs push.

Shape letters: C centres, D dimensions, Q pairs of two centres.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.losses.base import full_precision
from sumpool.losses.checks import above_zero, setting, whole
from sumpool.ops.pairs import masked_logsumexp
from sumpool.ops.similarity import similarity
from sumpool.ops.skewed_means import log_exp_mean, power_mean


class CentreRegulariser(nn.Module):
    """A `formula` of the cosines between the class centres, all or a random subset of them.

    The subset depends on `seed` and the number of steps only: every process of a distributed run draws the same one,
    and a resumed run goes on as if it had not been interrupted.
    """

    step: Tensor

    def __init__(self, subset: int | None = None, seed: int = 0) -> None:
        super().__init__()
        self.subset = None if subset is None else whole("subset", subset, 2)
        self.seed = whole("seed", seed)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def forward(self, centres: Tensor) -> Tensor:
        """The penalty of centres (C,D)."""
        if centres.dim() != 2 or len(centres) < 2:
            raise InputError(f"a centre regulariser needs at least 2 centres (C,D), got {tuple(centres.shape)}")
        if self.subset is not None and self.subset < len(centres):
            centres = centres[self.draw(len(centres)).to(centres.device)]
        with full_precision(centres):
            return self.formula(similarity(centres, centres))

    def draw(self, count: int) -> Tensor:
        """The next random subset of `count` centres."""
        generator = torch.Generator().manual_seed(self.seed + int(self.step))
        self.step += 1
        return torch.randperm(count, generator=generator)[: self.subset]

    def formula(self, cosines_CC: Tensor) -> Tensor:
        """The penalty from the cosines."""
        raise NotImplementedError


def upper(matrix_CC: Tensor) -> Tensor:
    """The entries of the Q = C(C−1)/2 pairs of different centres."""
    first, second = torch.triu_indices(len(matrix_CC), len(matrix_CC), 1, device=matrix_CC.device)
    return matrix_CC[first, second]


def distances(cosines_CC: Tensor) -> Tensor:
    """Distances (Q,) of the pairs; not below 1e-3, where the energies of merged centres would explode."""
    return (2 - 2 * upper(cosines_CC)).clamp(min=1e-6).sqrt()


class NearestPush(CentreRegulariser):
    r"""R1: soft maximum of each centre's cosines to the others, so that its nearest centres push.

    $\frac1C \sum_i \frac1\gamma\log\sum_{j\ne i} e^{\gamma(s_{ij} - \delta)}$
    """

    def __init__(self, scale: float = 10.0, margin: float = 0.0, subset: int | None = None, seed: int = 0) -> None:
        super().__init__(subset, seed)
        self.scale = above_zero("scale", scale)
        self.margin = setting("margin", margin, -1, 1)

    def formula(self, cosines_CC: Tensor) -> Tensor:
        """R1."""
        others_CC = ~torch.eye(len(cosines_CC), dtype=torch.bool, device=cosines_CC.device)
        return (masked_logsumexp(self.scale * (cosines_CC - self.margin), others_CC) / self.scale).mean()


class SimilarityMean(CentreRegulariser):
    r"""R2: power mean of all similarities between centres.

    $\bigl(\frac1{C(C-1)}\sum_{i\ne j} s_{ij}^\lambda\bigr)^{1/\lambda}$ with the positive similarity
    $s = (1 + \cos)/2$.
    """

    def __init__(self, skew: float = 4.0, subset: int | None = None, seed: int = 0) -> None:
        super().__init__(subset, seed)
        self.skew = setting("skew", skew)

    def formula(self, cosines_CC: Tensor) -> Tensor:
        """R2; antipodal centres count as similarity 1e-6."""
        return power_mean(((1 + upper(cosines_CC)) / 2).clamp(min=1e-6), self.skew)


class FarPush(CentreRegulariser):
    """Far-push: minus the skewed mean of the centre distances, so that the farthest pairs push (skew > 0)."""

    def __init__(
        self,
        skew: float = 4.0,
        mean: Literal["log_exp", "power"] = "log_exp",
        subset: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(subset, seed)
        if mean not in ("log_exp", "power"):
            raise InputError(f"mean must be 'log_exp' or 'power', got {mean!r}")
        self.skew = setting("skew", skew)
        self.mean = log_exp_mean if mean == "log_exp" else power_mean

    def formula(self, cosines_CC: Tensor) -> Tensor:
        """The negated skewed mean."""
        return -self.mean(distances(cosines_CC), self.skew)


class HypersphericalEnergy(CentreRegulariser):
    r"""Minimum hyperspherical energy: mean inverse power of the centre distances (Liu et al., 2018).

    Mean $d_{ij}^{-s}$, or mean $-\log d_{ij}$ for s = 0: a monotone map of a power mean of the distances, $b(-s)^{-s}$
    or $-\log b(0)$.
    """

    def __init__(self, power: float = 1.0, subset: int | None = None, seed: int = 0) -> None:
        super().__init__(subset, seed)
        self.power = setting("power", power, 0)

    def formula(self, cosines_CC: Tensor) -> Tensor:
        """The energy."""
        distances_Q = distances(cosines_CC)
        return distances_Q.pow(-self.power).mean() if self.power else -distances_Q.log().mean()


class UniformFace(HypersphericalEnergy):
    """UniformFace: mean inverse distance of the centres (Duan et al., 2019), the energy with power 1."""

    def __init__(self, subset: int | None = None, seed: int = 0) -> None:
        super().__init__(1.0, subset, seed)


REGULARISERS: dict[str, type[CentreRegulariser]] = {
    "nearest_push": NearestPush,
    "similarity_mean": SimilarityMean,
    "far_push": FarPush,
    "uniform_face": UniformFace,
    "energy": HypersphericalEnergy,
}
