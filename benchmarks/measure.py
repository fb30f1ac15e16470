"""Timing and memory for the benchmarks: candidates interleaved, medians, one process."""

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile


def median_seconds(candidates: Mapping[str, Callable[[], object]], rounds: int = 15) -> dict[str, float]:
    """Median wall time of each candidate; candidates take turns, so that a noisy minute hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 2):
        for name, candidate in candidates.items():
            start = time.perf_counter()
            candidate()
            if turn >= 2:  # the first two turns warm caches and allocators
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_bytes(candidate: Callable[[], object]) -> int:
    """Most bytes PyTorch's CPU allocator held at once during `candidate()`, above what it held before."""
    candidate()
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        candidate()
    events = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run with `count` intra-op threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def all_threads() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> str:
    """The machine and versions behind the numbers, in one line."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            cpu = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{cpu}, {all_threads()} cores, Python {platform.python_version()}, PyTorch {torch.__version__}"
