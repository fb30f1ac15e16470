"""The numbers of a run for TensorBoard, where that package is installed."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any


class Board:
    """Event files in a folder; does nothing where TensorBoard is not installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer: Any = None

    def write(self, step: int, values: dict[str, float]) -> None:
        """Add a point to each curve."""
        if find_spec("tensorboard") is None:
            return
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # A resumed run repeats the steps after its checkpoint: the points of the first try are taken back.
            self.writer = SummaryWriter(self.folder, purge_step=step)
        for name, value in values.items():
            # TensorBoard allows no @ and no blanks in names.
            self.writer.add_scalar(name.replace("@", "_at_").replace(" ", "_"), value, step)
        self.writer.flush()
