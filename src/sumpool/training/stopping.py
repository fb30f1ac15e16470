"""Ctrl-C and termination requests end a run after the current step, with nothing lost."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether somebody has asked to stop."""

    def __init__(self) -> None:
        self.made = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note the request; a second one acts at once, as without us."""
        self.made = True
        for known in SIGNALS:
            signal.signal(known, signal.default_int_handler if known == signal.SIGINT else signal.SIG_DFL)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Catch requests to stop while inside."""
    request = StopRequest()
    before = {number: signal.signal(number, request) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
