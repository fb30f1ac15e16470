"""Masks, masked sums, mining and triplets."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sumpool.ops.pairs import hard_pairs, masked_logsumexp, mean_nonzero, pair_masks
from sumpool.ops.triplets import triplet_hinge


def test_masks_exclude_only_the_own_copy() -> None:
    anchors, references = torch.tensor([3, 1]), torch.tensor([1, 3, 3, 2])
    positives, negatives = pair_masks(anchors, references, own_B=torch.tensor([2, 0]))
    assert positives.tolist() == [[False, True, False, False], [False] * 4]
    assert negatives.tolist() == [[True, False, False, True], [False, True, True, True]]
    positives, _ = pair_masks(anchors, references)
    assert positives.tolist() == [[False, True, True, False], [True, False, False, False]]


def test_masked_logsumexp_of_nothing_has_no_gradient() -> None:
    values = torch.tensor([[1.0, 2.0], [300.0, 400.0]], requires_grad=True)
    mask = torch.tensor([[False, False], [True, True]])
    result = torch.nn.functional.softplus(masked_logsumexp(values, mask))
    (gradient,) = torch.autograd.grad(result.sum(), values)
    assert result.tolist() == [0.0, 400.0]
    assert gradient[0].tolist() == [0.0, 0.0]
    assert gradient[1].sum().item() == pytest.approx(1.0)


def test_mean_nonzero() -> None:
    hinges = torch.tensor([1.0, -2.0, 3.0, 5.0])
    assert mean_nonzero(hinges, torch.tensor([True, True, True, False])) == 2
    assert mean_nonzero(hinges, torch.zeros(4, dtype=torch.bool)) == 0


def test_hard_pairs_by_hand() -> None:
    similarity = torch.tensor([[0.9, 0.5, 0.55, 0.2]])
    positives = torch.tensor([[True, True, False, False]])
    hard_positives, hard_negatives = hard_pairs(similarity, positives, ~positives, 0.1)
    assert hard_positives.tolist() == [[False, True, False, False]]
    assert hard_negatives.tolist() == [[False, False, True, False]]
    nothing = torch.zeros_like(positives)
    assert not any(mask.any() for mask in hard_pairs(similarity, nothing, ~positives, 0.1))


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.25, 1.0]))
@settings(max_examples=60, deadline=None)
def test_all_triplets_with_ties(seed: int, margin: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    distance = torch.randint(5, (4, 7), generator=generator).double() / 4  # many ties, exact in binary
    kind = torch.randint(3, (4, 7), generator=generator)
    positives, negatives = kind == 0, kind == 1
    distance.requires_grad_()
    terms = (distance.unsqueeze(2) - distance.unsqueeze(1) + margin)[positives.unsqueeze(2) & negatives.unsqueeze(1)]
    expected = terms[terms > 0].sum() / max(int((terms > 0).sum()), 1)
    value = triplet_hinge(distance, positives, negatives, margin)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, distance), torch.autograd.grad(expected, distance))


def test_tens_of_millions_of_triplets() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (512,), generator=generator)
    distance = torch.rand(512, 512, generator=generator, dtype=torch.float64)
    positives, negatives = pair_masks(labels, labels, torch.arange(512))
    total = count = 0
    for row, positive, negative in zip(distance, positives, negatives, strict=True):  # 2.5e7 terms in all
        terms = (row[positive].unsqueeze(1) - row[negative] + 0.1).relu()
        total, count = total + terms.sum(), count + terms.count_nonzero()
    torch.testing.assert_close(triplet_hinge(distance, positives, negatives, 0.1), total / count)
