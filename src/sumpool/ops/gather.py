"""The batches of all processes as one, with gradients.

Shape letters: B rows of this process, G rows of all processes.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def gather(local: Tensor) -> Tensor:
    r"""Rows (B, …) of every process, in rank order, (G, …); without a process group, `local` itself.

    Every process then computes the same loss of the whole batch. Its gradient with respect to its own rows is all it
    needs, so nothing is communicated in the backward pass; the rows' gradient is multiplied by the number of
    processes W because `DistributedDataParallel` will average over them. The result is the gradient of one process
    with the concatenated batch. Processes may have different numbers of rows.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return local
    sizes = [torch.zeros(1, dtype=torch.long, device=local.device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(local)], device=local.device))
    gathered: Tensor = _Gather.apply(local, [int(size) for size in sizes])
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, sizes: list[int]) -> Tensor:
        start = sum(sizes[: dist.get_rank()])
        ctx.own, ctx.world = slice(start, start + len(local)), len(sizes)
        padded = local.new_zeros(max(sizes), *local.shape[1:])
        padded[: len(local)] = local
        slots = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(slots, padded)
        return torch.cat([slot[:size] for slot, size in zip(slots, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad[ctx.own] * ctx.world, None
