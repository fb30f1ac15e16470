"""Files that a crash or a full disk never leaves half written."""

import os
from pathlib import Path

from sumpool.errors import InputError


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by a complete new one: written beside it, flushed to the disk, then renamed."""
    part = path.with_name(f"{path.name}.part")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as reason:
        part.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {reason.strerror}; what was there before is intact") from reason
