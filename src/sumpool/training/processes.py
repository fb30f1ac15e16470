"""One process or many: who this one is, and where it computes."""

import os
import sys
from dataclasses import dataclass
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from sumpool.errors import InputError
from sumpool.registry import lookup


@dataclass(frozen=True)
class Processes:
    """This process among those that `torchrun` started."""

    rank: int
    count: int
    device: torch.device

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes files and talks."""
        return self.rank == 0


def join(device: str) -> Processes:
    """Join the other processes if `torchrun` started this one, else be alone."""
    count = int(os.environ.get("WORLD_SIZE", 1))
    rank, local = int(os.environ.get("RANK", 0)), int(os.environ.get("LOCAL_RANK", 0))
    chosen = pick_device(device, local)
    if count > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    return Processes(rank, count, chosen)


def leave() -> None:
    """End the group of processes."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def end(code: int) -> NoReturn:
    """End this process at once, without the interpreter's own clean-up.

    DistributedDataParallel keeps the group's threads alive after the group is destroyed. One that still has a tensor to
    free when the interpreter goes away aborts the process, and `torchrun` would report a failure of a finished run.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def pick_device(name: str, local: int = 0) -> torch.device:
    """The device by name; "auto" takes the best there is."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    if not lookup("device", available, name):
        raise InputError(f"device {name} is not available here; use auto or cpu")
    return torch.device("cuda", local) if name == "cuda" else torch.device(name)


def place() -> tuple[int, int]:
    """Rank of this process and number of processes."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)


def shared(tensor: Tensor) -> Tensor:
    """Rank 0's tensor, written into that of every process."""
    if place()[1] > 1:
        dist.broadcast(tensor, src=0)
    return tensor


def anyone(flag: bool, device: torch.device) -> bool:
    """Whether the flag is set on any process: a request to stop may reach them between different steps."""
    if place()[1] == 1:
        return flag
    votes = torch.tensor(int(flag), device=device)
    dist.all_reduce(votes, op=dist.ReduceOp.MAX)
    return bool(votes)


def agreed(value: float, device: torch.device) -> float:
    """Rank 0's value on every process, so that all of them decide the same."""
    if place()[1] == 1:
        return value
    dtype = torch.float32 if device.type == "mps" else torch.float64
    return float(shared(torch.tensor(value, dtype=dtype, device=device)))
