"""A progress bar for anything long, on a terminal only."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
    track,
)

T = TypeVar("T")


def counted(items: Iterable[T], total: int | None, label: str) -> Iterator[T]:
    """The items, with a bar that counts them; `total` is None where it is not known before the end."""
    console = Console(stderr=True)
    return iter(track(items, label, total=total, console=console, transient=True, disable=not sys.stderr.isatty()))


def transfer() -> Progress:
    """A bar for bytes: used as a context manager, `add_task(label, total=…)`, `advance(task, bytes)`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
