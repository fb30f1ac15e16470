"""Settings of components are checked against the signatures that take them."""

from typing import Any, Literal

import numpy as np
import pytest

from sumpool.errors import InputError
from sumpool.registry import check_type, create


def component(count: int = 1, share: float = 0.5, word: str | None = None, flag: bool = False, rest: Any = 0) -> str:
    return f"{count} {share} {word} {flag} {rest}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 2.5}, "count of thing 'it' must be a whole number, got 2.5"),
        ({"count": True}, "must be a whole number, got True"),
        ({"share": "abc"}, "must be a number, got 'abc'"),
        ({"share": None}, "must be a number, got None"),
        ({"word": 3}, "must be a word or null, got 3"),
        ({"flag": 1}, "must be true or false, got 1"),
        ({"cuont": 1}, "thing 'it' has no setting 'cuont': did you mean 'count'"),
    ],
)
def test_settings_of_another_type_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        create("thing", {"it": component}, "it", **settings)


def test_numbers_of_other_libraries_and_whole_ones_for_any_are_taken() -> None:
    settings = {"count": np.int64(3), "share": 1, "word": None, "flag": True, "rest": [1]}
    assert create("thing", {"it": component}, "it", **settings) == "3 1 None True [1]"
    check_type("share", np.float32(0.5), float)


@pytest.mark.parametrize("annotation", [Literal["a"], dict[str, int], tuple[int, ...], int | Literal["all"]])
def test_types_of_other_kinds_are_not_looked_at(annotation: Any) -> None:
    check_type("it", object(), annotation)
