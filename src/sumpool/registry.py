"""Components by name: every folder of components has a visible table, and these functions read it."""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args

from sumpool.errors import InputError

T = TypeVar("T")
PLAIN = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", NoneType: "null"}


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt `name`: the closest known names, or all of them when none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {', '.join(known)}."


def lookup(kind: str, table: Mapping[str, T], name: str) -> T:
    """The entry `name` of a table of `kind`s; an unknown name is answered with the nearest ones.

    >>> lookup("pooling", {"gap": 1, "gem": 2}, "gep")
    Traceback (most recent call last):
    ...
    sumpool.errors.InputError: unknown pooling 'gep': did you mean 'gem' or 'gap'?
    """
    if name in table:
        return table[name]
    raise InputError(f"unknown {kind} {name!r}: {nearest(name, table)}")


def create(kind: str, table: Mapping[str, Callable[..., T]], name: str, **settings: Any) -> T:
    """Build the component `name` with its own keyword arguments; an unknown setting is refused by name."""
    factory = lookup(kind, table, name)
    check_settings(f"{kind} {name!r}", factory, settings)
    return factory(**settings)


def check_settings(owner: str, factory: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Refuse settings that `factory` does not take, and those of another type than its signature says."""
    accepted = inspect.signature(factory).parameters
    for setting, value in settings.items():
        if setting not in accepted:
            raise InputError(f"{owner} has no setting {setting!r}: {nearest(setting, accepted)}")
        check_type(f"{setting} of {owner}", value, accepted[setting].annotation)


def check_type(name: str, value: object, annotation: Any) -> None:
    """Refuse a value of another type than one made of numbers, words, booleans and None; others are not looked at.

    >>> check_type("mass", 1, float | None)
    >>> check_type("mass", "much", float | None)
    Traceback (most recent call last):
    ...
    sumpool.errors.InputError: mass must be a number or null, got 'much'
    """
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    if all(kind in PLAIN for kind in kinds) and not any(_is(value, kind) for kind in kinds):
        raise InputError(f"{name} must be {' or '.join(PLAIN[kind] for kind in kinds)}, got {value!r}")


def _is(value: object, kind: type) -> bool:
    """Whether a value is of a plain type, whatever the library it comes from; a boolean is no number."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, Integral if kind is int else Real if kind is float else kind)


def describe(component: object) -> str:
    """The first line of a component's docstring."""
    return (inspect.getdoc(component) or "").split("\n", 1)[0]


class Configured:
    """A component that remembers, as `settings`, what its constructor was called with, so that it can be built again.

    >>> class Pooling(Configured):
    ...     def __init__(self, dim: int, power: float = 3.0) -> None: ...
    >>> Pooling(8).settings
    {'dim': 8, 'power': 3.0}
    """

    settings: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _remembering(cls.__init__)  # type: ignore[method-assign]


def _remembering(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def wrapper(self: Configured, *args: Any, **kwargs: Any) -> None:
        # The constructor of the class itself runs before those of its ancestors, which it calls.
        if "settings" not in vars(self):
            called = signature.bind(self, *args, **kwargs)
            called.apply_defaults()
            object.__setattr__(self, "settings", dict(list(called.arguments.items())[1:]))
        init(self, *args, **kwargs)

    return wrapper
