"""Where the trainings of a comparison run: one after the other here, or side by side in processes of this machine."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path
from typing import TypeAlias

from sumpool.errors import InputError
from sumpool.evaluation.tally import Tally
from sumpool.evaluation.trial import Part, run_trial
from sumpool.training.config import TrainConfig

Trial: TypeAlias = tuple[TrainConfig, Path]
WORKER = [sys.executable, "-m", "sumpool.evaluation.worker"]


def run_trials(trials: Sequence[Trial], jobs: int = 1, part: Part = "test") -> None:
    """Run every training, or what is left of it, `jobs` at a time; the processor's cores are shared out among them.

    The first one that fails stops the others, with their state saved, and is named in the error.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    trials = [trial for trial in trials if not complete(trial, part)]
    tally = Tally(len(trials), "one after the other" if jobs == 1 else f"{jobs} at a time")
    if jobs == 1:
        _run_here(trials, part, tally)
    else:
        _run_in_processes(trials, jobs, part, tally)


def complete(trial: Trial, part: Part = "test") -> bool:
    """Whether a training has come to its end and has embedded the part."""
    return (trial[1] / f"{part}.safetensors").exists()


def _run_here(trials: Sequence[Trial], part: Part, tally: Tally) -> None:
    for config, folder in trials:
        try:
            run_trial(config, folder, part)
        except InputError as reason:
            raise InputError(f"{folder}: {reason}") from reason
        tally.done(folder)


def _run_in_processes(trials: Sequence[Trial], jobs: int, part: Part, tally: Tally) -> None:
    waiting = list(reversed(trials))
    idle = [_Worker(threads(jobs)) for _ in range(min(jobs, len(trials)))]
    busy: dict[int, _Worker] = {}
    try:
        while waiting or busy:
            while waiting and idle:
                worker = idle.pop()
                worker.begin(*waiting.pop(), part)
                busy[worker.answers.fileno()] = worker
            for answer in wait(list(busy)):
                worker = busy.pop(answer)  # type: ignore[arg-type]
                idle.append(worker)
                tally.done(worker.finish())
    finally:
        _stop([*idle, *busy.values()])


def threads(jobs: int) -> int:
    """Threads of one of several trainings: its share of the cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // jobs)


class _Worker:
    """A process of `sumpool.evaluation.worker`, out of reach of Ctrl-C, which this process passes on by itself."""

    def __init__(self, count: int) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            WORKER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            start_new_session=True,
            env={"OMP_NUM_THREADS": str(count), "OMP_WAIT_POLICY": "PASSIVE", **os.environ},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.orders, self.answers = self.process.stdin, self.process.stdout

    def begin(self, config: TrainConfig, folder: Path, part: Part) -> None:
        """Hand over a training."""
        self.folder = folder
        with suppress(BrokenPipeError):  # it has crashed, which `finish` tells
            print(json.dumps([asdict(config), str(folder), part]), file=self.orders, flush=True)

    def finish(self) -> Path:
        """The folder of the training that is complete; an error if it failed, or if the process has crashed."""
        answer = self.answers.readline()
        if not answer:
            raise InputError(
                f"the training in {self.folder} has crashed ({self._cause()}); the same command resumes it"
            )
        error = json.loads(answer)["error"]
        if error:
            raise InputError(f"{self.folder}: {error}")
        return self.folder

    def _cause(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it left no message")
        return f"{signal.Signals(-code).name if code < 0 else f'exit code {code}'}: {last}"


def _stop(workers: Sequence[_Worker]) -> None:
    """End the processes: a training saves its state first, unless Ctrl-C is pressed again."""
    try:
        for worker in workers:
            worker.orders.close()
        for worker in workers:
            worker.process.wait()
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()
            worker.answers.close()
            worker.errors.close()
