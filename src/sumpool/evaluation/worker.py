"""`python -m sumpool.evaluation.worker`: a process that trains what it is told to.

Every line of its input is a training, answered by a line when that is complete or has failed. When the input ends,
because the process that gave it has enough, was stopped or has died, a training in progress ends with its state saved.
"""

import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from sumpool.errors import InputError
from sumpool.evaluation.trial import Part, run_trial
from sumpool.training.config import TrainConfig


def main() -> None:
    """Train until the input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not be taken for an answer
    orders: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(orders,), daemon=True).start()
    while True:
        print(json.dumps({"error": train(*json.loads(orders.get()))}), file=answers, flush=True)


def train(settings: dict[str, Any], folder: str, part: Part) -> str | None:
    """Run one training; what went wrong in one sentence, or None."""
    try:
        run_trial(TrainConfig.from_dict(settings), Path(folder), part)
    except InputError as reason:
        return str(reason)
    except Exception as reason:
        traceback.print_exc()
        return f"{type(reason).__name__}: {reason}"
    return None


def _read(orders: "SimpleQueue[str]") -> None:
    """Pass the input on; at its end ask the training, or the process that waits for one, to stop."""
    for line in sys.stdin:
        orders.put(line)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
