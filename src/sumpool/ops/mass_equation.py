r"""The scalar equation behind partial transport: find τ with mean_j σ(u_j + τ) = μ, for every image of a batch.

Shape letters: B images, N local features of an image; 1 a kept dimension.
"""

import math

import torch
from torch import Tensor

from sumpool.errors import InputError

NEWTON_STEPS = 100  # more than bisection alone needs; two or three steps are usual
SHORT = 0.25  # Newton steps this short need no safeguard
TRACED_STEPS = 12  # a traced graph cannot stop early; from the rank bracket this is enough for every mass and sharpness


@torch.no_grad()
def solve_shares(
    u_BN: Tensor, mass: float | Tensor, mask_BN: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """σ(u+τ) and σ(−u−τ) at the root τ to the precision of `dtype`, by safeguarded Newton steps on the log odds.

    In log odds the equation is log Σσ(x) − log Σσ(−x) = log μ/(1−μ): its slope is at most 1, and exactly 1 when all u
    are equal, which makes Newton quick; and both sides keep their relative precision as μ → 0 or 1.
    """
    traced = torch.compiler.is_compiling()
    if not traced and len(u_BN) == 0:
        return _shares(u_BN, mask_BN)
    odds = _log_odds(mass, dtype)
    n = count(u_BN, mask_BN)
    centre_B1 = (u_BN if mask_BN is None else u_BN * mask_BN).sum(1, keepdim=True) / n
    x_BN = u_BN + (odds - centre_B1)  # the root if all u were equal; t is what remains to be added
    t_B1 = torch.zeros_like(centre_B1)
    bracket: tuple[Tensor, Tensor] | None = None
    if traced:
        bracket = _rank_bracket(x_BN, mass, mask_BN, *_range_bracket(x_BN, odds, mask_BN))
        t_B1 = (bracket[0] + bracket[1]) / 2
    for _ in range(TRACED_STEPS if traced else NEWTON_STEPS):
        share_BN, rest_BN = _shares(x_BN + t_B1, mask_BN)
        share_B1, rest_B1 = share_BN.sum(1, keepdim=True), rest_BN.sum(1, keepdim=True)
        gap_B1 = odds - (share_B1 / rest_B1).log()
        newton_B1 = gap_B1 * share_B1 * rest_B1 / (n * (share_BN * rest_BN).sum(1, keepdim=True))
        # |G''| ≤ 2 G' for the log odds G, so a Newton step of length s leaves an error of about s² at most, and short
        # steps get shorter without any safeguard.
        longest = math.inf if traced else float(newton_B1.abs().max())
        if longest <= SHORT:
            t_B1 = t_B1 + newton_B1
            if longest * longest <= torch.finfo(dtype).eps / 8:
                break
            continue
        bracket = _tightened(bracket or _range_bracket(x_BN, odds, mask_BN), t_B1, gap_B1)
        step_B1 = _safeguarded(newton_B1, t_B1, gap_B1, *bracket)
        t_B1 = t_B1 + step_B1
        if not traced:
            largest = float(step_B1.abs().max())
            if math.isnan(largest):
                raise InputError("the transport cost has NaN or infinite entries; check the features and prototypes")
            if largest <= torch.finfo(dtype).eps / 8:
                break
    return _shares(x_BN + t_B1, mask_BN)


def _tightened(bracket: tuple[Tensor, Tensor], t_B1: Tensor, gap_B1: Tensor) -> tuple[Tensor, Tensor]:
    """The bracket after an evaluation at t: a positive gap means that the root is above."""
    below_B1 = gap_B1 > 0
    return torch.where(below_B1, t_B1, bracket[0]), torch.where(below_B1, bracket[1], t_B1)


def _safeguarded(newton_B1: Tensor, t_B1: Tensor, gap_B1: Tensor, low_B1: Tensor, high_B1: Tensor) -> Tensor:
    """The Newton step where it stays in the bracket, else the step to its middle; none where the gap is rounding.

    On a plateau between two features every τ is a root to rounding, but the slope there is next to nothing.
    """
    goal_B1 = t_B1 + newton_B1
    inside_B1 = goal_B1 == goal_B1.clamp(low_B1, high_B1)
    step_B1 = torch.where(inside_B1, newton_B1, (low_B1 + high_B1) / 2 - t_B1)
    return step_B1.masked_fill(gap_B1.abs() <= 4 * torch.finfo(gap_B1.dtype).eps, 0)


def _range_bracket(x_BN: Tensor, odds: float | Tensor, mask_BN: Tensor | None) -> tuple[Tensor, Tensor]:
    """Bounds of the root from the extreme features: logit μ − max x ≤ t ≤ logit μ − min x."""
    low_BN = x_BN if mask_BN is None else x_BN.masked_fill(~mask_BN, math.inf)
    high_BN = x_BN if mask_BN is None else x_BN.masked_fill(~mask_BN, -math.inf)
    return odds - high_BN.amax(1, keepdim=True), odds - low_BN.amin(1, keepdim=True)


def _rank_bracket(
    x_BN: Tensor, mass: float | Tensor, mask_BN: Tensor | None, low_B1: Tensor, high_B1: Tensor
) -> tuple[Tensor, Tensor]:
    """Tighten the bounds of the root by every order statistic x_(1) ≥ x_(2) ≥ …, whatever the sharpness.

    The first r features move at least r σ(x_(r)+t), so t ≤ logit(μn/r) − x_(r) for every r > μn; the others move at
    most (n−r) σ(x_(r+1)+t) beyond r, so t ≥ logit((μn−r)/(n−r)) − x_(r+1) for every r < μn. (Sorting costs more than
    the two or three Newton steps of an ordinary problem, so only traced graphs, which cannot stop early, do it.)
    """
    n = count(x_BN, mask_BN)
    moved_B1 = mass * n
    hidden_BN = x_BN if mask_BN is None else x_BN.masked_fill(~mask_BN, -math.inf)
    sorted_BN = hidden_BN.sort(dim=1, descending=True).values
    rank_N = torch.arange(1, x_BN.shape[1] + 1, dtype=x_BN.dtype, device=x_BN.device)
    above_BN = torch.logit((moved_B1 / rank_N).clamp(max=1)) - sorted_BN
    below_BN = torch.logit(((moved_B1 - rank_N + 1) / (n - rank_N + 1)).clamp(0, 1)) - sorted_BN
    upper = (rank_N > moved_B1) & (rank_N <= n)
    lower = (rank_N - 1 < moved_B1) & (rank_N <= n)
    high_B1 = torch.minimum(high_B1, torch.where(upper, above_BN, math.inf).amin(1, keepdim=True))
    low_B1 = torch.maximum(low_B1, torch.where(lower, below_BN, -math.inf).amax(1, keepdim=True))
    return torch.minimum(low_B1, high_B1), high_B1


def wide(tensor: Tensor) -> Tensor:
    """Double precision for the small (B,N) part, so that float32 costs are solved exactly even at huge sharpness."""
    return tensor if tensor.device.type == "mps" else tensor.double()  # MPS has no double


def _log_odds(mass: float | Tensor, dtype: torch.dtype) -> float | Tensor:
    """log μ/(1−μ), capped where 1 − σ is far below rounding and σ' does not underflow yet: there μ = 1 is uniform."""
    cap = -2.5 * math.log(torch.finfo(dtype).eps)
    if isinstance(mass, Tensor):
        return (mass.log() - torch.log1p(-mass)).clamp(max=cap)
    return cap if mass == 1 else min(cap, math.log(mass) - math.log1p(-mass))


def _shares(x_BN: Tensor, mask_BN: Tensor | None) -> tuple[Tensor, Tensor]:
    """σ(x) and σ(−x), each to full relative precision; zero where masked."""
    share_BN, rest_BN = torch.sigmoid(x_BN), torch.sigmoid(-x_BN)
    return (share_BN, rest_BN) if mask_BN is None else (share_BN * mask_BN, rest_BN * mask_BN)


def count(like_BN: Tensor, mask_BN: Tensor | None) -> int | Tensor:
    """Number n of features that count, per image (B,1) if there is a mask."""
    return like_BN.shape[1] if mask_BN is None else mask_BN.sum(1, keepdim=True).to(like_BN.dtype)


def implicit_gradient(
    grad_BN: Tensor, share_BN: Tensor, rest_BN: Tensor, mask_BN: Tensor | None, with_mass: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients in u and μ of a function of the shares: ∂τ/∂u_j = −d_j/Σd and ∂τ/∂μ = n/Σd with d = σ(1−σ)."""
    slope_BN = share_BN * rest_BN
    # Saturated everywhere, the shares are locally constant: the gradient is zero, not 0/0.
    portion_BN = slope_BN / slope_BN.sum(1, keepdim=True).clamp_min(torch.finfo(slope_BN.dtype).tiny)
    moved_BN = slope_BN * grad_BN
    grad_u_BN = moved_BN - portion_BN * moved_BN.sum(1, keepdim=True)
    if not with_mass:
        return grad_u_BN, None
    return grad_u_BN, count(share_BN, mask_BN) * (portion_BN * grad_BN).sum(1, keepdim=True)
