"""Components by name: every folder of components has a visible table, and these functions read it."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from sumpool.errors import InputError

T = TypeVar("T")


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
    accepted = inspect.signature(factory).parameters
    for setting in settings:
        if setting not in accepted:
            raise InputError(f"{kind} {name!r} has no setting {setting!r}: {nearest(setting, accepted)}")
    return factory(**settings)


def describe(component: object) -> str:
    """The first line of a component's docstring."""
    return (inspect.getdoc(component) or "").split("\n", 1)[0]
