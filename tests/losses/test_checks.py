"""Labels and settings at the border."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from sumpool.errors import InputError
from sumpool.losses.checks import Classes, above_zero, as_labels, checked, setting, whole


@pytest.mark.parametrize("labels", [[4, 2], (4, 2), np.array([4, 2]), torch.tensor([4, 2], dtype=torch.int32)])
def test_integers_of_any_kind(labels: object) -> None:
    assert as_labels(labels).equal(torch.tensor([4, 2]))


def test_strings_get_the_same_number_in_every_process() -> None:
    # Written down once: a memory in a checkpoint holds these numbers.
    assert as_labels(["gull", "wren"]).tolist() == [7567258136393453936, 3515523841593082773]
    assert as_labels(np.array(["gull"])).tolist() == [7567258136393453936]


@pytest.mark.parametrize(
    "labels", [[1, "gull"], ["gull", None], [0.5], [True], [[1], [2]], torch.zeros(2, 2).long(), None, 3, "gull"]
)
def test_other_labels_are_refused(labels: object) -> None:
    with pytest.raises(InputError, match="labels must be"):
        as_labels(labels)


def test_a_list_of_classes_keeps_its_order() -> None:
    classes = Classes([30, 10, 20])
    assert classes.index([10, 20, 30, 10]).tolist() == [1, 2, 0, 1]
    with pytest.raises(InputError, match="label 11 of row 0 is not among the 3 classes"):
        classes.index(torch.tensor([11]))
    with pytest.raises(InputError, match="names a class twice"):
        Classes(["gull", "gull"])
    with pytest.raises(InputError, match="at least one class"):
        Classes(0)


def test_a_number_of_classes_of_any_kind() -> None:
    assert Classes(np.int64(5)).count == 5


@pytest.mark.parametrize("embeddings", [[[0.5, 1.0]], np.ones((1, 2)), None])
def test_embeddings_are_a_tensor(embeddings: object) -> None:
    with pytest.raises(InputError, match=f"embeddings must be a tensor, got {type(embeddings).__name__}"):
        checked(embeddings, [0])


@pytest.mark.parametrize("check", [setting, above_zero, whole])
@pytest.mark.parametrize("value", ["x", None, [1], True, float("nan"), float("inf")])
def test_a_setting_is_a_finite_number(check: Callable[..., float], value: object) -> None:
    with pytest.raises(InputError, match="margin must be a finite number, got"):
        check("margin", value)


def test_large_finite_embeddings_are_not_mistaken_for_infinity() -> None:
    embeddings = torch.full((2, 4), 60000.0, dtype=torch.float16)  # their sum is infinite in half precision
    assert checked(embeddings, [0, 1])[0].dtype == torch.float32
