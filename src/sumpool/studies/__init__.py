"""Studies: one file per figure or table of the texts."""

from collections.abc import Callable
from pathlib import Path

from sumpool.studies.toy import toy

STUDIES: dict[str, Callable[[Path], None]] = {
    "toy": toy,
}
