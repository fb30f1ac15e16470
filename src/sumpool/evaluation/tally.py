"""How far a comparison is: a line for every finished training, with the time left."""

import sys
import time
from pathlib import Path


class Tally:
    """Counts trainings on the error stream; whole lines, so that the bar of a training in this process fits between."""

    def __init__(self, total: int, where: str) -> None:
        self.total, self.count, self.started = total, 0, time.monotonic()
        if total:
            self._say(f"{total} trainings to do, {where}")

    def done(self, folder: Path) -> None:
        """One more is complete."""
        self.count += 1
        left = (time.monotonic() - self.started) / self.count * (self.total - self.count)
        rest = f", about {spell(left)} left" if self.count < self.total else ""
        self._say(f"{self.count} of {self.total} trainings done, the last in {folder}{rest}")

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def spell(seconds: float) -> str:
    """A duration for people.

    >>> spell(42), spell(600), spell(30_000)
    ('42 s', '10 min', '8.3 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
