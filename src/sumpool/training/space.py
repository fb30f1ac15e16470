"""What a sweep varies: settings by dotted name, each with a list of choices or a range."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, TypeAlias

from sumpool.errors import InputError
from sumpool.registry import nearest
from sumpool.training.factorial import design

Value: TypeAlias = "str | int | float | bool | None"


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Value, ...]

    @property
    def levels(self) -> tuple[Value, ...]:
        """All values."""
        return self.values


@dataclass(frozen=True)
class Range:
    """Numbers between `low` and `high`, whole ones if both are; on a logarithmic scale, or in steps."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"a range needs low < high, got {self.low} and {self.high}")
        if self.log and (self.low <= 0 or self.step is not None):
            raise InputError(f"a logarithmic range needs low > 0 and takes no step, got {self}")
        if self.step is not None and self.step <= 0:
            raise InputError(f"the step of a range must be above 0, got {self.step}")
        if not self.whole:  # also an end that was written without a point: it shows what the numbers between will be
            object.__setattr__(self, "low", float(self.low))
            object.__setattr__(self, "high", float(self.high))

    @property
    def whole(self) -> bool:
        """Whether only integers are meant."""
        return all(isinstance(number, int) for number in (self.low, self.high, self.step or 1))

    @property
    def levels(self) -> tuple[Value, ...]:
        """The numbers at the steps; empty without a step."""
        count = 0 if self.step is None else int((self.high - self.low) / self.step + 1e-9) + 1
        return tuple(self.low + index * (self.step or 0) for index in range(count))


Space: TypeAlias = dict[str, "Choice | Range"]
Point: TypeAlias = dict[str, Value]


def read_space(content: object) -> Space:
    """The search space of a YAML file's content.

    >>> read_space({"lr": {"low": 1e-6, "high": 1e-3, "log": True}, "loss": ["contrastive", "triplet"]})["loss"]
    Choice(values=('contrastive', 'triplet'))
    """
    if not isinstance(content, Mapping) or not content:
        raise InputError("a search space names settings, each with a list of choices or low and high, got none")
    return {str(name): _dimension(str(name), entry) for name, entry in content.items()}


def _dimension(name: str, entry: object) -> Choice | Range:
    if isinstance(entry, list) and len(entry) > 1:
        return Choice(tuple(entry))
    if not isinstance(entry, Mapping) or not {"low", "high"} <= set(entry):
        raise InputError(f"{name} needs a list of at least two choices, or low and high, got {entry!r}")
    known = [field.name for field in fields(Range)]
    for key, value in entry.items():
        if key not in known:
            raise InputError(f"{name} has no part {key!r}: {nearest(str(key), known)}")
        if not isinstance(value, int | float):
            raise InputError(f"{key} of {name} must be a number, got {value!r}")
    return Range(**entry)


def grid(space: Space) -> list[Point]:
    """Every combination of the levels."""
    for name, dimension in space.items():
        if not dimension.levels:
            raise InputError(f"a grid needs a list or a step for {name}, got a range without one")
    points = product(*(dimension.levels for dimension in space.values()))
    return [dict(zip(space, point, strict=True)) for point in points]


def screening(space: Space) -> list[Point]:
    """The runs of a two-level fractional factorial design."""
    ends = {name: two_levels(name, dimension) for name, dimension in space.items()}
    return [{name: ends[name][level > 0] for name, level in zip(space, run, strict=True)} for run in design(len(space))]


def two_levels(name: str, dimension: Choice | Range) -> tuple[Value, Value]:
    """The low and the high level of a factor."""
    levels = (dimension.low, dimension.high) if isinstance(dimension, Range) else dimension.values
    if len(levels) != 2:
        raise InputError(f"a factorial screening needs two levels for {name}, got {len(levels)}")
    return levels[0], levels[1]


def put(settings: Mapping[str, Any], point: Point) -> dict[str, Any]:
    """Settings with a point's values in their places; a dot leads into a dictionary.

    >>> put({"lr": 0.1, "pooling_settings": {"mass": 0.3}}, {"lr": 0.2, "pooling_settings.prototypes": 8})
    {'lr': 0.2, 'pooling_settings': {'mass': 0.3, 'prototypes': 8}}
    """
    result = dict(settings)
    for name, value in point.items():
        first, dot, rest = name.partition(".")
        if dot and not isinstance(result.get(first) or {}, Mapping):
            raise InputError(f"{first} has no parts, so there is no setting {name!r} to vary")
        result[first] = put(result.get(first) or {}, {rest: value}) if dot else value
    return result
