"""Centre regularisers, and what the skewed-mean text claims about them."""

import math

import pytest
import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.losses import REGULARISERS, FarPush, HypersphericalEnergy, NearestPush, SimilarityMean, UniformFace
from sumpool.ops.skewed_means import log_exp_mean, power_mean


@pytest.fixture
def centres() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 4, generator=generator, dtype=torch.float64).requires_grad_()


def cosines(centres: Tensor) -> list[list[float]]:
    unit = centres / centres.norm(dim=1, keepdim=True)
    return (unit @ unit.T).tolist()


def distances(centres: Tensor) -> Tensor:
    unit = centres.detach() / centres.detach().norm(dim=1, keepdim=True)
    return torch.pdist(unit)


every_regulariser = pytest.mark.parametrize("name", REGULARISERS)


@every_regulariser
def test_gradcheck_and_scale_invariance(name: str, centres: Tensor) -> None:
    regulariser = REGULARISERS[name]()
    assert torch.autograd.gradcheck(regulariser, (centres,))
    torch.testing.assert_close(regulariser(3 * centres), regulariser(centres))


@every_regulariser
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_merged_and_antipodal_centres_are_finite(name: str, dtype: torch.dtype) -> None:
    centres = torch.tensor([[1.0, 0], [1.0, 0], [-1.0, 0], [0, 1.0]], requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        value = REGULARISERS[name]()(centres)
    (gradient,) = torch.autograd.grad(value, centres)
    assert value.isfinite()
    assert gradient.isfinite().all()


@every_regulariser
def test_descent_spreads_the_centres(name: str) -> None:
    torch.manual_seed(0)
    centres = (torch.randn(5, 8) * 0.3 + 1).requires_grad_()  # all on one side of the sphere
    before = distances(centres).mean()
    optimizer = torch.optim.Adam([centres], lr=0.05)
    regulariser = REGULARISERS[name]()
    for _ in range(100):
        optimizer.zero_grad()
        regulariser(centres).backward()
        optimizer.step()
    assert distances(centres).mean() > 1.5 * before


def test_r1_and_r2_are_their_formulas(centres: Tensor) -> None:
    s = cosines(centres)
    rows = [math.log(sum(math.exp(7 * (s[i][j] - 0.2)) for j in range(6) if j != i)) / 7 for i in range(6)]
    assert NearestPush(scale=7, margin=0.2)(centres).item() == pytest.approx(sum(rows) / 6)
    powers = [((1 + s[i][j]) / 2) ** 3 for i in range(6) for j in range(6) if i != j]
    assert SimilarityMean(skew=3)(centres).item() == pytest.approx((sum(powers) / 30) ** (1 / 3))


def test_energies_are_power_means_up_to_a_monotone_map(centres: Tensor) -> None:
    d = distances(centres)
    torch.testing.assert_close(UniformFace()(centres).detach(), 1 / power_mean(d, -1))
    for power in (1, 2):
        energy = HypersphericalEnergy(power)(centres).detach()
        torch.testing.assert_close(energy, d.pow(-power).mean())
        torch.testing.assert_close(energy, power_mean(d, -power) ** -power)
    torch.testing.assert_close(HypersphericalEnergy(0)(centres).detach(), -power_mean(d, 0).log())


@pytest.mark.parametrize(("family", "mean"), [("log_exp", log_exp_mean), ("power", power_mean)])
def test_far_push_is_minus_the_skewed_mean_of_the_distances(centres: Tensor, family: str, mean: object) -> None:
    value = FarPush(skew=5.0, mean=family)(centres).detach()
    torch.testing.assert_close(value, -mean(distances(centres), 5.0))


def pushes(regulariser: torch.nn.Module) -> tuple[float, float]:
    """Gradient of a regulariser's formula with respect to the cosine of a near and of a far pair."""
    matrix = torch.eye(3, dtype=torch.float64)
    matrix[0, 1] = matrix[1, 0] = 0.8
    matrix[0, 2] = matrix[2, 0] = -0.6
    matrix.requires_grad_()
    (gradient,) = torch.autograd.grad(regulariser.formula(matrix), matrix)
    gradient = gradient + gradient.T
    return gradient[0, 1].item(), gradient[0, 2].item()


@pytest.mark.parametrize(
    "regulariser", [NearestPush(), SimilarityMean(), UniformFace(), HypersphericalEnergy(0), HypersphericalEnergy(2)]
)
def test_energies_and_similarities_push_the_nearest_pair_most(regulariser: torch.nn.Module) -> None:
    near, far = pushes(regulariser)
    assert near > far > 0


@pytest.mark.parametrize("mean", ["log_exp", "power"])
def test_far_push_pushes_the_farthest_pair_most(mean: str) -> None:
    near, far = pushes(FarPush(skew=8.0, mean=mean))
    assert far > near > 0


def test_a_ring_of_neighbours_is_stuck_for_energies_and_not_by_far_push() -> None:
    # The text's figure: six near centres around one push it in directions that cancel.
    angle = torch.arange(6, dtype=torch.float64) * math.pi / 3
    ring = torch.stack([0.2 * angle.cos(), 0.2 * angle.sin(), torch.ones(6, dtype=torch.float64)], 1)
    lone = torch.tensor([[-1.0, 0.3, 0.1]], dtype=torch.float64)
    centres = torch.cat([torch.tensor([[0.0, 0, 1]], dtype=torch.float64), ring, lone]).requires_grad_()

    def share(regulariser: torch.nn.Module) -> float:
        (gradient,) = torch.autograd.grad(regulariser(centres), centres)
        return (gradient[0].norm() / gradient.norm()).item()

    assert share(HypersphericalEnergy(2)) < 0.01
    assert share(FarPush(skew=8.0)) > 10 * share(HypersphericalEnergy(2))


@every_regulariser
def test_a_random_subset(name: str, centres: Tensor) -> None:
    kind = REGULARISERS[name]
    subset = kind(subset=3, seed=4)
    drawn = [kind(subset=3, seed=4).draw(6) for _ in range(2)]
    assert torch.equal(*drawn)  # every process draws the same
    first, second = subset(centres), subset(centres)
    torch.testing.assert_close(first, kind()(centres[drawn[0]]))
    assert first != second
    resumed = kind(subset=3, seed=4)
    resumed.step.fill_(1)
    torch.testing.assert_close(resumed(centres), second)
    torch.testing.assert_close(kind(subset=6)(centres), kind()(centres))


def test_many_classes_with_a_subset_stay_small() -> None:
    centres = torch.randn(11318, 64, requires_grad=True)
    value = FarPush(subset=256)(centres)
    value.backward()
    assert centres.grad is not None
    assert (centres.grad.abs().sum(1) > 0).sum() <= 256


@pytest.mark.parametrize("regulariser", [FarPush(100), FarPush(2000), SimilarityMean(100), FarPush(100, "power")])
def test_thousands_of_centres_in_single_precision(regulariser: torch.nn.Module) -> None:
    centres = torch.randn(3000, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values, slopes = [], []
    for dtype in (torch.float64, torch.float32):
        leaf = torch.nn.functional.normalize(centres).to(dtype).requires_grad_()
        value = regulariser(leaf)
        values.append(value.item())
        slopes.append(torch.autograd.grad(value, leaf)[0])
    assert values[1] == pytest.approx(values[0], rel=1e-5)
    assert (slopes[1] - slopes[0]).norm() < 1e-3 * slopes[0].norm()


def test_bad_settings_are_named() -> None:
    with pytest.raises(InputError, match="skew must be a finite number, got inf"):
        FarPush(math.inf)
    with pytest.raises(InputError, match=r"subset must be a whole number, got 2\.5"):
        UniformFace(subset=2.5)
    with pytest.raises(InputError, match="seed must be a finite number, got 'x'"):
        UniformFace(seed="x")
    with pytest.raises(InputError, match="subset must be at least 2, got 1"):
        UniformFace(subset=1)
    with pytest.raises(InputError, match="'log_exp' or 'power', got 'median'"):
        FarPush(mean="median")
    with pytest.raises(InputError, match=r"at least 2 centres \(C,D\), got \(1, 4\)"):
        UniformFace()(torch.ones(1, 4))
