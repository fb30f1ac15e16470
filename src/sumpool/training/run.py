"""The folder of a run: what was asked for, what happened, and what came out.

config.yaml        the complete configuration; `sumpool train --config` repeats the run
environment.json   command, versions, machine, state of the code
metrics.jsonl      one line per log entry and validation
summary.html       scores, curves and configuration on one page
tensorboard/       the same curves for TensorBoard, if it is installed
best/              the best model so far, as `Embedder.load` reads it
last.safetensors   everything needed to continue
"""

import json
import platform
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch
import yaml

from sumpool import __version__
from sumpool.errors import InputError
from sumpool.files import write_atomically
from sumpool.training.board import Board
from sumpool.training.summary import summary_page

CONFIG, ENVIRONMENT, METRICS, BEST, LAST = (
    "config.yaml",
    "environment.json",
    "metrics.jsonl",
    "best",
    "last.safetensors",
)
SUMMARY, BOARD = "summary.html", "tensorboard"


class Run:
    """Writes a run folder; on processes other than the first it writes nothing."""

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.folder, self.writes = folder, writes
        self.board = Board(folder / BOARD)

    def require_new(self) -> None:
        """Refuse a folder that holds a run already; only the process that writes looks, since it makes the folder."""
        if self.writes and (self.folder / CONFIG).exists():
            raise InputError(f"{self.folder} holds a run already: choose another folder, or continue it with --resume")

    def create(self, config: str) -> None:
        """Start a new folder with the configuration, as YAML."""
        self.require_new()
        if self.writes:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / ENVIRONMENT, (json.dumps(environment(), indent=1) + "\n").encode())
            write_atomically(self.folder / CONFIG, config.encode())

    def log(self, entry: dict[str, Any]) -> None:
        """Append a line to the metrics, and bring the summary and TensorBoard up to date."""
        if not self.writes:
            return
        try:
            with open(self.folder / METRICS, "a") as file:
                file.write(json.dumps(entry) + "\n")
            self.board.write(entry["step"], {name: value for name, value in entry.items() if name != "step"})
        except OSError as reason:
            raise InputError(
                f"cannot log in {self.folder}: {reason.strerror}; the last checkpoint is intact"
            ) from reason
        self.summarise()

    def summarise(self) -> None:
        """Write the summary page."""
        config, environment = ((self.folder / name).read_text() for name in (CONFIG, ENVIRONMENT))
        page = summary_page(self.folder.name, yaml.safe_load(config)["score"], self.entries(), config, environment)
        write_atomically(self.folder / SUMMARY, page.encode())

    def entries(self) -> list[dict[str, Any]]:
        """What was logged, up to a line that a crash cut short."""
        path = self.folder / METRICS
        lines = path.read_text().splitlines() if path.exists() else []
        found = []
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                break
            if not isinstance(entry, dict) or "step" not in entry:  # the beginning of one may be JSON too
                break
            found.append(entry)
        return found

    def forget_after(self, step: int) -> None:
        """Drop what was logged after a checkpoint: the resumed run will log it again."""
        if self.writes:
            kept = [json.dumps(entry) + "\n" for entry in self.entries() if entry["step"] <= step]
            write_atomically(self.folder / METRICS, "".join(kept).encode())
            self.summarise()


def environment() -> dict[str, Any]:
    """What a run depended on besides its configuration."""
    packages = {found.name: found.version for found in distributions() if found.name}
    return {
        "command": sys.argv,
        "sumpool": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "code": code_state(),
        "packages": dict(sorted(packages.items())),
    }


def code_state() -> dict[str, Any] | None:
    """Commit of the package's checkout and whether it was changed; None when it was installed without one."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return None
