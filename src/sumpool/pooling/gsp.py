r"""Generalized sum pooling: average only the local features that lie close to learned prototypes.

Gürbüz, Sener, Alatan: Generalized Sum Pooling for Metric Learning, ICCV 2023.

Shape letters: B images, N local features, C backbone channels, D embedding channels, M prototypes, R memory rows.
"""

import math

import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.ops.gather import gather
from sumpool.ops.k_center import greedy_k_center
from sumpool.ops.transport import Transport, partial_transport
from sumpool.pooling.base import Pooling, at_least_float32, linear, uniform_weights, weighted_sum
from sumpool.types import Pooled


def lipschitz_scale(norm: Tensor) -> Tensor:
    """1 / max(1, ‖v‖): the factor that brings a vector into the unit ball and leaves it alone inside."""
    return 1 / norm.clamp_min(1)


def prototype_cost(features_BND: Tensor, prototypes_MD: Tensor) -> Tensor:
    r"""Distance between prototypes and local features after both are brought into the unit ball, (B,M,N).

    .. math:: c_{ij} = \lVert \bar\omega_i - \bar f_j \rVert_2, \qquad \bar u = u / \max(1, \lVert u \rVert_2).

    One matrix product; the normalised features are never stored. Distances below √(machine epsilon), where the
    product's rounding would dominate the gradient, count as that with a zero gradient.
    """
    norm_BN = torch.linalg.vector_norm(features_BND, dim=2)
    scale_BN = lipschitz_scale(norm_BN)
    prototypes_MD = prototypes_MD * lipschitz_scale(torch.linalg.vector_norm(prototypes_MD, dim=1, keepdim=True))
    dot_BMN = linear(features_BND, prototypes_MD).mT
    squares_M1 = prototypes_MD.square().sum(1, keepdim=True)
    squared_BMN = squares_M1 + (norm_BN * scale_BN).square()[:, None, :] - 2 * scale_BN[:, None, :] * dot_BMN
    floor = torch.finfo(squared_BMN.dtype).eps
    return torch.sqrt(squared_BMN.clamp_min(floor))


class GSP(Pooling):
    r"""Generalized sum pooling: weights from entropic partial transport to learned prototypes.

    With f = projected local features, ω = prototypes, and the solution (π, ρ) of partial transport with
    :math:`c_{ij} = \lVert\bar\omega_i - \bar f_j\rVert`, mass μ and sharpness ε:

    .. math:: p_j = \frac{1/n - \rho_j}{\mu}, \qquad g = \sum_j p_j f_j, \qquad z_i = \frac1\mu \sum_j \pi_{ij} .

    Until `memory` embeddings have been seen in training mode the layer is global average pooling and its attributes
    are zero; then greedy k-center picks the prototypes among them, once and in place, so that an optimizer made
    before trains them. In a distributed run every rank sees all ranks' embeddings and picks the same.

    Args:
        in_features: channels C of the backbone.
        dim: channels D of the embedding, the space in which costs and sums live; None: no projection.
        prototypes: their number m. 64 suits a hundred classes, 128 thousands.
        mass: fraction μ of the features to keep, 0 < μ ≤ 1.
        sharpness: ε ≥ 0; 5 suits sample losses, 0.5 proxy losses.
        role: "foreground": prototypes attract what is kept; "background": they attract what is dropped, and the
            weights are ρ_j/(1−μ).
        memory: embeddings to collect before the prototypes are picked; 0 keeps the random ones.
        learn_mass: train μ, kept in (0, 1).
        learn_sharpness: train ε, kept positive.

    >>> pool = GSP(in_features=8, dim=4, prototypes=2)
    >>> out = pool(torch.randn(3, 8, 5, 5))
    >>> out.vector.shape, out.weights.shape, out.attributes.shape, out.grid
    (torch.Size([3, 4]), torch.Size([3, 25]), torch.Size([3, 2]), (5, 5))
    """

    # Assigned by register_buffer.
    rows: Tensor
    seen: Tensor

    def __init__(
        self,
        in_features: int,
        dim: int | None = None,
        prototypes: int = 64,
        mass: float = 0.3,
        sharpness: float = 5.0,
        *,
        role: str = "foreground",
        memory: int = 1024,
        learn_mass: bool = False,
        learn_sharpness: bool = False,
    ) -> None:
        super().__init__(in_features, dim)
        _check(prototypes, mass, sharpness, role, memory, learn_mass, learn_sharpness)
        self.role, self.memory = role, memory
        self.prototypes = nn.Parameter(torch.empty(prototypes, self.out_features))
        nn.init.normal_(self.prototypes, std=self.out_features**-0.5)
        self.log_odds = nn.Parameter(torch.tensor(math.log(mass / (1 - mass)))) if learn_mass else None
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(sharpness))) if learn_sharpness else None
        self._mass, self._sharpness = mass, sharpness
        self.register_buffer("rows", torch.zeros(memory, self.out_features))
        self.register_buffer("seen", torch.tensor(0))
        self._collecting = memory > 0
        self.extend()

    def extend(self) -> None:
        """Add what a subclass needs besides; its settings are the same, so it has no constructor of its own."""

    @property
    def mass(self) -> float | Tensor:
        """μ, a number or the current value of the learned one."""
        if self.log_odds is None:
            return self._mass
        # Not quite 0 or 1, to which a sigmoid rounds: neither would leave something to divide by.
        return at_least_float32(self.log_odds).sigmoid().clamp(1e-6, 1 - 1e-6)

    @property
    def sharpness(self) -> float | Tensor:
        """ε, a number or the current value of the learned one."""
        if self.log_sharpness is None:
            return self._sharpness
        return at_least_float32(self.log_sharpness).clamp_max(20).exp()  # e²⁰ picks the nearest as infinity would

    @property
    def ready(self) -> bool:
        """Whether the prototypes have been picked; until then the layer is global average pooling."""
        return int(self.seen) >= self.memory

    def transport(self, features_BND: Tensor, mask_BN: Tensor | None) -> Transport:
        """The transport problem of projected features, solved in at least float32 whatever autocast says."""
        precise = torch.promote_types(features_BND.dtype, torch.float32)
        with torch.autocast(features_BND.device.type, enabled=False):
            cost_BMN = prototype_cost(features_BND.to(precise), self.prototypes.to(precise))
            return partial_transport(cost_BMN, self.mass, self.sharpness, mask_BN)

    def pool(self, features_BNC: Tensor, mask_BN: Tensor | None, grid: tuple[int, int] | None) -> Pooled:
        """Pool a checked set of local features."""
        features_BND = self.project(features_BNC)
        uniform_BN = uniform_weights(features_BND, mask_BN)
        if self.training and self._collecting:
            remember(weighted_sum(features_BND.detach(), uniform_BN), self.rows, self.seen, self.prototypes)
            if not torch.compiler.is_compiling():  # a compiled graph calls on; the operator then does nothing
                self._collecting = not self.ready
        transport = self.transport(features_BND, mask_BN)
        chosen_BN = transport.weights
        if self.role == "background":
            chosen_BN = transport.residual / (1 - self.mass)
        # A tensor, not a Python condition: a compiled graph follows when the prototypes become ready.
        ready = self.seen >= self.memory
        weights_BN = torch.where(ready, chosen_BN, uniform_BN.to(chosen_BN.dtype))
        vector_BD = self.combined(features_BNC, features_BND, weights_BN, mask_BN)
        return Pooled(vector_BD, weights_BN, transport.attributes * ready, grid)

    def combined(
        self, features_BNC: Tensor, features_BND: Tensor, weights_BN: Tensor, mask_BN: Tensor | None
    ) -> Tensor:
        """The vector from raw and projected features and their weights: the weighted sum of the projected ones."""
        return weighted_sum(features_BND, weights_BN)

    def _load_from_state_dict(self, *args: object, **kwargs: object) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._collecting = not self.ready

    def extra_repr(self) -> str:
        """The settings, for `print(model)`."""
        return (
            f"{super().extra_repr()}, prototypes={len(self.prototypes)}, mass={self._mass}, "
            f"sharpness={self._sharpness}, role={self.role}"
        )


def remember(embeddings_BD: Tensor, rows_RD: Tensor, seen: Tensor, prototypes_MD: Tensor) -> None:
    """Remember embeddings, brought into the unit ball; once there are enough, pick the prototypes among them."""
    precise_BD = embeddings_BD.to(rows_RD.dtype)
    scale_B1 = lipschitz_scale(torch.linalg.vector_norm(precise_BD, dim=1, keepdim=True))
    collect(precise_BD * scale_B1, rows_RD, seen, prototypes_MD.detach())


@torch.library.custom_op("sumpool::collect", mutates_args=("rows", "seen", "prototypes"))
def collect(embeddings: Tensor, rows: Tensor, seen: Tensor, prototypes: Tensor) -> None:
    """Append embeddings to `rows`; when they are full, overwrite `prototypes` by greedy k-center over them.

    An operator of its own, so that a compiled graph contains it as one opaque node.
    """
    start, capacity = int(seen), len(rows)
    if start >= capacity:
        return
    embeddings = gather(embeddings)
    if not bool(embeddings.isfinite().all()):
        raise InputError("GSP got NaN or infinite features in training: it cannot pick prototypes among them")
    stop = min(start + len(embeddings), capacity)
    rows[start:stop] = embeddings[: stop - start]
    if stop == capacity:
        prototypes.copy_(rows[greedy_k_center(rows, len(prototypes)).indices])
    seen.fill_(stop)


@collect.register_fake
def _(embeddings: Tensor, rows: Tensor, seen: Tensor, prototypes: Tensor) -> None:
    return None


def _check(
    prototypes: int,
    mass: float,
    sharpness: float,
    role: str,
    memory: int,
    learn_mass: bool,
    learn_sharpness: bool,
) -> None:
    if prototypes < 1:
        raise InputError(f"prototypes must be at least 1, got {prototypes}")
    if not 0 < mass <= 1:
        raise InputError(f"mass must be in (0, 1], got {mass}")
    if not 0 <= sharpness < math.inf:
        raise InputError(f"sharpness must be finite and at least 0, got {sharpness}")
    if role not in ("foreground", "background"):
        raise InputError(f"role must be 'foreground' or 'background', got {role!r}")
    if mass == 1 and (role == "background" or learn_mass):
        raise InputError("mass 1 keeps every feature: it leaves no background and cannot be learned; take less than 1")
    if learn_sharpness and sharpness == 0:
        raise InputError("sharpness 0 cannot be learned: start from a positive value")
    if memory != 0 and memory < prototypes:
        raise InputError(f"memory must be 0 or at least the number of prototypes ({prototypes}), got {memory}")
