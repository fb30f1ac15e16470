"""What every loss of the table promises."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.losses import LOSSES, PRESETS, REGULARISERS, PairLoss, create_loss
from sumpool.registry import describe

Batch = tuple[Tensor, Tensor]
Build = Callable[..., nn.Module]
CLASSES, DIM = 6, 8
PAIR_LOSSES = [name for name, loss in LOSSES.items() if issubclass(loss, PairLoss)]
every_loss = pytest.mark.parametrize("name", LOSSES)


@every_loss
def test_scalar_with_finite_gradient(name: str, batch: Batch, build: Build) -> None:
    embeddings, labels = batch
    value = build(name)(embeddings, labels)
    value.backward()
    assert value.shape == ()
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()
    assert embeddings.grad.abs().sum() > 0


# The circle loss's weights are constants of its backward pass, so its gradient is not that of its value by definition.
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "circle"])
def test_gradcheck(name: str, batch: Batch, build: Build) -> None:
    embeddings, labels = batch
    loss = build(name)
    parameters = list(loss.parameters())
    many = sum(parameter.numel() for parameter in parameters) > 100
    assert torch.autograd.gradcheck(lambda x, *_: loss(x, labels), (embeddings, *parameters), fast_mode=many)


@every_loss
def test_order_and_label_names_do_not_matter(name: str, batch: Batch, build: Build) -> None:
    embeddings, labels = batch
    loss = build(name)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))
    expected = loss(embeddings, labels)
    if name == "n_pair":  # the first pair of each class is chosen, so only the order of the classes is free
        order = torch.argsort(labels, stable=True)
    torch.testing.assert_close(loss(embeddings[order], labels[order]), expected)
    if name in PAIR_LOSSES:
        torch.testing.assert_close(loss(embeddings, labels * 1000 + 7), expected)
        torch.testing.assert_close(loss(embeddings, [f"class {label}" for label in labels.tolist()]), expected)


@every_loss
@pytest.mark.parametrize(
    "labels", [[0, 1, 2], [1, 1, 1], [1], []], ids=["no positives", "no negatives", "one row", "none"]
)
def test_missing_pairs_leave_a_finite_gradient(name: str, labels: list[int], build: Build) -> None:
    embeddings = torch.randn(len(labels), DIM, dtype=torch.float64, requires_grad=True)
    value = build(name)(embeddings, labels)
    (gradient,) = torch.autograd.grad(value, embeddings)
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_no_pair_at_all_is_zero(name: str, build: Build) -> None:
    embeddings = torch.randn(1, DIM, dtype=torch.float64, requires_grad=True)
    value = build(name)(embeddings, [4])
    (gradient,) = torch.autograd.grad(value, embeddings)
    assert value == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_identical_embeddings_leave_a_finite_gradient(name: str, build: Build) -> None:
    embeddings = torch.ones(6, DIM, requires_grad=True)
    value = build(name)(embeddings, [0, 0, 1, 1, 2, 2])
    (gradient,) = torch.autograd.grad(value, embeddings)
    assert value.isfinite()
    assert gradient.isfinite().all()


@every_loss
@pytest.mark.parametrize("dataset", PRESETS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_at_the_presets(name: str, dataset: str, dtype: torch.dtype) -> None:
    sizes = {} if name in PAIR_LOSSES else {"classes": CLASSES, "dim": DIM}
    torch.manual_seed(0)
    loss = create_loss(name, preset=dataset, **sizes)
    labels = torch.arange(CLASSES).repeat_interleave(4)
    # Tight clusters at half-precision's coarse cosines, and large raw norms.
    clusters = torch.eye(DIM)[labels] * 200 + torch.randn(len(labels), DIM)
    for embeddings in (clusters, torch.randn(len(labels), DIM)):
        half = embeddings.to(dtype).requires_grad_()
        with torch.autocast("cpu", dtype=dtype):
            value = loss(half, labels)
        exact = loss(half.detach().float(), labels)
        (gradient,) = torch.autograd.grad(value, half)
        assert gradient.isfinite().all()
        torch.testing.assert_close(value, exact)


@every_loss
def test_bad_input_is_named(name: str, batch: Batch, build: Build) -> None:
    embeddings, labels = batch
    loss = build(name)
    with pytest.raises(InputError, match="10 labels for 9 rows"):
        loss(embeddings[1:], labels)
    with pytest.raises(InputError, match="row 4 has -1"):
        loss(embeddings, labels.where(torch.arange(10) != 4, -1))
    broken = embeddings.detach().clone()
    broken[7, 2] = float("nan")
    with pytest.raises(InputError, match="first row 7"):
        loss(broken, labels)
    with pytest.raises(InputError, match="list of integers or strings"):
        loss(embeddings, labels.double())
    with pytest.raises(InputError, match="matrix"):
        loss(embeddings[0], labels)
    with pytest.raises(InputError, match="embeddings must be a tensor, got list"):
        loss(embeddings.tolist(), labels)
    with pytest.raises(InputError, match="labels must be a list of integers or strings, got None"):
        loss(embeddings, None)
    if name not in PAIR_LOSSES:
        with pytest.raises(InputError, match=f"{DIM} dimensions, the batch {DIM - 1}"):
            loss(embeddings[:, 1:], labels)
        with pytest.raises(InputError, match=f"label {CLASSES} of row 0 is not among the {CLASSES} classes"):
            loss(embeddings, labels + 1)


@every_loss
def test_double_precision_embeddings_in_a_loss_of_single_precision(name: str, batch: Batch, build: Build) -> None:
    torch.testing.assert_close(
        build(name).float()(*batch), build(name)(*batch), check_dtype=False, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in PAIR_LOSSES])
def test_classes_by_name_equal_classes_by_number(name: str, batch: Batch, build: Build) -> None:
    embeddings, labels = batch
    numbered = build(name)
    words = [f"bird {label}" for label in range(CLASSES)]
    torch.manual_seed(1)
    named = LOSSES[name](classes=words, dim=DIM).double()
    value = named(embeddings, [words[label] for label in labels])
    torch.testing.assert_close(value, numbered(embeddings, labels))
    with pytest.raises(InputError, match="label 'ostrich' of row 1"):
        named(embeddings, [words[0], "ostrich", *[words[0]] * 8])


@every_loss
def test_state_round_trip(name: str, batch: Batch, build: Build) -> None:
    first, second = build(name), build(name)
    for parameter in first.parameters():
        torch.nn.init.normal_(parameter)
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(first(*batch), second(*batch))


@pytest.mark.parametrize("table", [LOSSES, REGULARISERS])
def test_every_member_is_described(table: dict[str, type]) -> None:
    for name, member in table.items():
        assert describe(member).endswith((".", ")")), name


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("contrastive", {"positive_margin": -1.0}, "positive_margin must be at least 0, got -1.0"),
        ("contrastive", {"positive_margin": 0.5, "negative_margin": 0.2}, "negative_margin must be at least 0.5"),
        ("original_contrastive", {"margin": 1.5}, "margin must be between -1 and 1, got 1.5"),
        ("multi_similarity", {"beta": 0.0}, "beta must be positive, got 0.0"),
        ("triplet", {"margin": "x"}, "margin of loss 'triplet' must be a number, got 'x'"),
        ("libc", {"classes": 3, "dim": 0}, "dim must be at least 1, got 0"),
        ("libc", {"classes": 3, "dim": 4, "heads": "x"}, "heads of loss 'libc' must be a whole number, got 'x'"),
        ("soft_triple", {"classes": 3, "dim": 4, "per_class": "x"}, "per_class of loss 'soft_triple' must be"),
        ("triplet", {"norm": "unt"}, "did you mean 'unit'"),
        ("triplet", {"margn": 0.1}, "did you mean 'margin'"),
    ],
)
def test_bad_settings_fail_when_written(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        create_loss(name, **settings)
