"""Formulas against loops, where pytorch-metric-learning has no counterpart or a shortcut deserves a second truth."""

import math

import pytest
import torch
from torch import Tensor

from sumpool.losses import Circle, Contrastive, Margin, OriginalProxyNCA, SoftTriple
from sumpool.losses.contrastive import contrastive
from sumpool.losses.lifted_structure import lifted_structure
from sumpool.losses.multi_similarity import multi_similarity
from sumpool.losses.original_contrastive import original_contrastive
from sumpool.losses.proxy_anchor import proxy_anchor
from sumpool.losses.proxy_nca import original_proxy_nca
from sumpool.losses.soft_triple import centre_spread
from sumpool.ops.triplets import triplet_hinge

Problem = tuple[list[list[float]], Tensor, Tensor, Tensor]


@pytest.fixture(params=range(3))
def problem(request: pytest.FixtureRequest) -> Problem:
    """A random matrix, as nested lists and as tensor, with disjoint random masks: any reference set, any mining."""
    generator = torch.Generator().manual_seed(request.param)
    matrix = torch.rand(5, 9, generator=generator, dtype=torch.float64)
    kind = torch.randint(3, (5, 9), generator=generator)
    return matrix.tolist(), matrix, kind == 0, kind == 1


def under(values: list[list[float]], mask: Tensor) -> list[list[float]]:
    return [
        [value for value, keep in zip(row, kept, strict=True) if keep] for row, kept in zip(values, mask, strict=True)
    ]


def mean_nonzero(terms: list[float]) -> float:
    active = [term for term in terms if term > 0]
    return sum(active) / max(len(active), 1)


def test_contrastive(problem: Problem) -> None:
    values, matrix, positives, negatives = problem
    pull = [d - 0.2 for row in under(values, positives) for d in row]
    push = [0.7 - d for row in under(values, negatives) for d in row]
    expected = mean_nonzero(pull) + mean_nonzero(push)
    assert contrastive(matrix, positives, negatives, 0.2, 0.7).item() == pytest.approx(expected)


def test_original_contrastive(problem: Problem) -> None:
    values, matrix, positives, negatives = problem
    pull = sum(max(1 - s, 0) for row in under(values, positives) for s in row)
    push = sum(max(s - 0.5, 0) for row in under(values, negatives) for s in row)
    assert original_contrastive(matrix, positives, negatives, 0.5).item() == pytest.approx((pull + push) / 5)


@pytest.mark.parametrize("margin", [0.0, 0.1, 5.0])
def test_triplet(problem: Problem, margin: float) -> None:
    values, matrix, positives, negatives = problem
    rows = zip(under(values, positives), under(values, negatives), strict=True)
    expected = mean_nonzero([p - n + margin for pulled, pushed in rows for p in pulled for n in pushed])
    assert triplet_hinge(matrix, positives, negatives, margin).item() == pytest.approx(expected)


def test_multi_similarity(problem: Problem) -> None:
    values, matrix, positives, negatives = problem
    pull = [math.log1p(sum(math.exp(-3 * (s - 0.4)) for s in row)) / 3 for row in under(values, positives)]
    push = [math.log1p(sum(math.exp(20 * (s - 0.4)) for s in row)) / 20 for row in under(values, negatives)]
    expected = (sum(pull) + sum(push)) / 5
    assert multi_similarity(matrix, positives, negatives, 3, 20, 0.4).item() == pytest.approx(expected)


def test_lifted_structure(problem: Problem) -> None:
    values, matrix, positives, negatives = problem
    terms = []
    for a, p in positives.nonzero().tolist():
        push = [values[a][n] for n in range(9) if negatives[a, n]] + [values[b][p] for b in range(5) if negatives[b, p]]
        terms.append(max(math.log(sum(math.exp(1 - d) for d in push)) + values[a][p] - 0.1, 0) ** 2 / 2)
    expected = sum(terms) / len(terms)
    assert lifted_structure(matrix, positives, negatives, 0.1, 1.0).item() == pytest.approx(expected)


def test_margin_boundary_is_learned() -> None:
    loss = Margin(boundary=0.8, learn_boundary=True).double()
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    labels = torch.arange(8) // 2
    assert torch.autograd.gradcheck(lambda boundary: loss(embeddings, labels), (loss.boundary,))
    assert loss.weight_decay is False


def test_circle_weights_are_constants_of_the_backward_pass() -> None:
    cosine = torch.tensor([[0.3, 0.6]], dtype=torch.float64, requires_grad=True)
    positives = torch.tensor([[True, False]])
    value = Circle(relaxation=0.25, scale=4).formula(cosine, positives, ~positives)
    (gradient,) = torch.autograd.grad(value, cosine)
    pull, push = 1.25 - 0.3, 0.6 + 0.25
    exponent = 4 * push * (0.6 - 0.25) - 4 * pull * (0.3 - 0.75)
    share = 1 / (1 + math.exp(-exponent))
    assert value.item() == pytest.approx(math.log1p(math.exp(exponent)))
    assert gradient.tolist()[0] == pytest.approx([-4 * pull * share, 4 * push * share])


def test_original_proxy_nca_leaves_the_own_proxy_out() -> None:
    cosines = torch.tensor([[0.9, 0.1, -0.3], [0.2, 0.4, 0.0]], dtype=torch.float64)
    own, others = [0.9, 0.4], [[0.1, -0.3], [0.2, 0.0]]
    terms = [math.log(sum(math.exp(2 * s - 2) for s in row)) - (2 * p - 2) for p, row in zip(own, others, strict=True)]
    assert original_proxy_nca(cosines, torch.tensor([0, 1]), 1.0).item() == pytest.approx(sum(terms) / 2)
    with pytest.raises(ValueError, match="at least 2 classes"):
        OriginalProxyNCA(classes=1, dim=4)


def test_proxy_anchor() -> None:
    cosines = [[0.9, 0.1, -0.3], [0.2, 0.4, 0.0], [0.7, 0.3, 0.2]]
    index = [0, 1, 0]
    pull, push = [], []
    for p in range(3):
        own = [row[p] for row, y in zip(cosines, index, strict=True) if y == p]
        rest = [row[p] for row, y in zip(cosines, index, strict=True) if y != p]
        push.append(math.log1p(sum(math.exp(32 * (s + 0.1)) for s in rest)))
        if own:
            pull.append(math.log1p(sum(math.exp(-32 * (s - 0.1)) for s in own)))
    expected = sum(pull) / 2 + sum(push) / 3
    assert proxy_anchor(torch.tensor(cosines), torch.tensor(index), 0.1, 32).item() == pytest.approx(expected, rel=1e-5)


def test_soft_triple_spread() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    unit = centres / centres.norm(dim=2, keepdim=True)
    total = sum(
        math.sqrt(2 + 1e-5 - 2 * float(unit[c, k] @ unit[c, j])) for c in range(2) for k in range(3) for j in range(k)
    )
    assert centre_spread(centres).item() == pytest.approx(total / (2 * 3 * 2))
    merged = SoftTriple(classes=2, dim=4, per_class=3)
    merged.proxies.reset(torch.ones(2, 3, 4))
    merged(torch.randn(4, 4, generator=generator), [0, 1, 0, 1]).backward()
    assert merged.proxies.vectors.grad is not None
    assert merged.proxies.vectors.grad.isfinite().all()


@pytest.mark.parametrize("norm", ["unit", "lipschitz", "none"])
def test_norm_is_what_the_embeddings_are_divided_by(norm: str) -> None:
    embeddings = torch.tensor([[0.3, 0.0], [0.0, 4.0], [-2.0, 0.0]])
    divided = {"unit": [[1.0, 0], [0, 1], [-1, 0]], "lipschitz": [[0.3, 0], [0, 1], [-1, 0]], "none": embeddings}[norm]
    value = Contrastive(0.0, 10.0, norm=norm)(embeddings, [0, 0, 1])
    distance = torch.cdist(torch.as_tensor(divided), torch.as_tensor(divided))
    torch.testing.assert_close(value, distance[0, 1] + (10 - (distance[0, 2] + distance[1, 2]) / 2))
