"""Where the datasets are: a folder given by the user, never guessed."""

import os
from pathlib import Path

from sumpool.errors import InputError

VARIABLE = "SUMPOOL_DATA"


def data_root(root: str | Path | None = None) -> Path:
    """The data folder: `root`, or else what the environment variable SUMPOOL_DATA says."""
    chosen = root or os.environ.get(VARIABLE)
    if not chosen:
        raise InputError(f"no data folder given: pass --data-root FOLDER or set {VARIABLE}")
    return Path(chosen).expanduser()
