"""How a run goes, on a terminal: a bar with rate and time left."""

import sys
from types import TracebackType

import rich.progress
from rich.console import Console


class Progress:
    """A bar over the steps of a run; silent where nobody watches."""

    def __init__(self, steps: int, done: int, shown: bool) -> None:
        columns = (
            rich.progress.TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.fields[rate]}"),
            rich.progress.TimeRemainingColumn(),
            rich.progress.TextColumn("{task.fields[note]}"),
        )
        disable = not shown or not sys.stderr.isatty()
        self.bar = rich.progress.Progress(*columns, console=Console(stderr=True), transient=True, disable=disable)
        self.task = self.bar.add_task("", total=steps, completed=done, rate="", note="")

    def advance(self, note: str) -> None:
        """One step further."""
        speed = self.bar.tasks[0].speed
        self.bar.update(self.task, advance=1, note=note, rate="" if speed is None else f"{speed:.2f} steps/s")

    def __enter__(self) -> "Progress":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
