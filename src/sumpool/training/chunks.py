"""The gradient of a big batch with the activations of one chunk at a time (Gao et al. 2021, GradCache).

Embed all chunks without a graph, differentiate the objective with respect to the embeddings, then embed each chunk
again and push its part of that gradient through the network.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import repeat

import torch
from torch import Tensor, nn

from sumpool.pooling import GSP
from sumpool.types import Pooled

Embed = Callable[[Tensor], Pooled]
Loss = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, dict[str, Tensor]]]


def backward_in_chunks(
    model: nn.Module, embed: Embed, loss: Loss, images: Tensor, labels: Tensor, size: int
) -> dict[str, Tensor]:
    """Accumulate the gradient of the loss of the whole batch; returns the loss' values to log."""
    chunks = images.split(size)
    if any(not gsp.ready for gsp in _selective(model)):
        # Prototypes see the whole batch before any embedding of it is used, as they would without chunks.
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for chunk in chunks:
                embed(chunk)
    with _not_collecting(model):
        parts, states = [], []
        for chunk in chunks:
            states.append(torch.get_rng_state())
            with torch.no_grad():
                parts.append(embed(chunk))
        leaves = _joined([part.vector for part in parts]), _joined([part.attributes for part in parts])
        assert leaves[0] is not None
        total, values = loss(leaves[0], labels, leaves[1])
        total.backward()
        slopes = [repeat(None) if leaf is None or leaf.grad is None else leaf.grad.split(size) for leaf in leaves]
        for number, (chunk, state, *slope) in enumerate(zip(chunks, states, *slopes, strict=False), start=1):
            torch.set_rng_state(state)  # dropout, if any, as in the first pass
            with _synchronised(model, number == len(chunks)):
                pooled = embed(chunk)
                pairs = zip((pooled.vector, pooled.attributes), slope, strict=True)
                outputs, grads = zip(*((out, grad) for out, grad in pairs if grad is not None), strict=True)
                torch.autograd.backward(outputs, grads)
    return values


def _joined(parts: list[Tensor] | list[Tensor | None]) -> Tensor | None:
    """The chunks' outputs as one leaf of a new graph; None where the model gives none."""
    there = [part for part in parts if part is not None]
    return torch.cat(there).requires_grad_() if there else None


def _synchronised(model: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Gradients travel between processes once per step, with the last chunk: forward *and* backward belong inside."""
    if isinstance(model, nn.parallel.DistributedDataParallel) and not last:
        return model.no_sync()
    return nullcontext()


def _selective(model: nn.Module) -> list[GSP]:
    return [module for module in model.modules() if isinstance(module, GSP)]


@contextmanager
def _not_collecting(model: nn.Module) -> Iterator[None]:
    """GSP layers as in training, but without remembering embeddings."""
    layers = [gsp for gsp in _selective(model) if gsp.training]
    for gsp in layers:
        gsp.training = False
    try:
        yield
    finally:
        for gsp in layers:
            gsp.training = True
