"""Batches in worker processes, resumable, with unreadable images named."""

import warnings
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from sumpool.data.dataset import Dataset, Sample
from sumpool.data.samplers import BatchSampler, Draw
from sumpool.errors import InputError
from sumpool.types import Batch


class _Outcome(NamedTuple):
    """What a worker sends: the readable part of a batch, and a sentence per unreadable image.

    Only the images travel as a tensor: each tensor costs a shared-memory file between the processes.
    """

    images: Tensor | None
    labels: list[int]
    rows: list[int]
    problems: list[str]

    def batch(self) -> Batch | None:
        """The batch, None when nothing was readable."""
        return None if self.images is None else Batch(self.images, torch.tensor(self.labels), torch.tensor(self.rows))


class _Guarded(torch.utils.data.Dataset["Sample | str"]):
    """A dataset whose bad images become sentences: an exception would arrive from a worker as a long traceback."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __getitem__(self, draw: Draw) -> "Sample | str":
        try:
            return self.dataset[draw]
        except InputError as problem:
            return str(problem)


def _collate(samples: "list[Sample | str]") -> _Outcome:
    good = [sample for sample in samples if not isinstance(sample, str)]
    problems = [sample for sample in samples if isinstance(sample, str)]
    images = torch.stack([image for image, _, _ in good]) if good else None
    return _Outcome(images, [label for _, label, _ in good], [row for _, _, row in good], problems)


class Loader:
    """Iterate over the batches of an epoch; each complete iteration moves on to the next epoch.

    `state_dict` counts the batches handed out, not those prefetched, so a run that stops after any step resumes with
    exactly the batches (and augmentations) it would have seen.

    Args:
        dataset: with a transform.
        sampler: which images form a batch.
        workers: processes that decode; 0 decodes in this one.
        bad: "raise" stops at an unreadable image, "skip" leaves it out with a warning.
        pin_memory: place batches where a GPU copies them from fast.
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: BatchSampler,
        workers: int = 0,
        bad: Literal["raise", "skip"] = "raise",
        pin_memory: bool = False,
    ) -> None:
        if workers < 0 or bad not in ("raise", "skip"):
            raise InputError(f"expected workers ≥ 0 and bad raise or skip, got {workers} and {bad}")
        self.dataset, self.sampler, self.bad = dataset, sampler, bad
        self.epoch, self.batch = 0, 0
        self.skipped: set[str] = set()
        self._resume = 0
        self._batches: DataLoader[_Outcome] = DataLoader(
            _Guarded(dataset),  # type: ignore[arg-type]
            batch_sampler=sampler,
            num_workers=workers,
            collate_fn=_collate,
            persistent_workers=workers > 0,
            pin_memory=pin_memory,
            generator=torch.Generator(),  # leaves the global random state alone
        )

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        self.batch, self._resume = self._resume, 0
        self.sampler.set_epoch(self.epoch, self.batch)
        for outcome in self._batches:
            self.batch += 1
            self._report(outcome.problems)
            batch = outcome.batch()
            if batch is not None:
                yield batch
        self.epoch, self.batch = self.epoch + 1, 0

    def _report(self, problems: list[str]) -> None:
        for problem in problems:
            if self.bad == "raise":
                raise InputError(f"{problem} (training leaves such images out with --bad-images skip)")
            if problem not in self.skipped:
                warnings.warn(f"skipped: {problem}", stacklevel=3)
                self.skipped.add(problem)

    def state_dict(self) -> dict[str, int]:
        """Where the next batch comes from."""
        return {"epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue there: the next iteration runs the rest of that epoch."""
        self.epoch, self.batch = state["epoch"], state["batch"]
        self._resume = self.batch
