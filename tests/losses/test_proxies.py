"""Proxies around pair losses."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.losses import (
    LOSSES,
    ClassProxies,
    Contrastive,
    Memory,
    OriginalContrastive,
    PairLoss,
    Proxies,
    ProxyLoss,
    Reference,
    SoftTriple,
)

Batch = tuple[Tensor, Tensor]


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if issubclass(loss, PairLoss)])
def test_any_pair_loss_against_proxies(name: str, batch: Batch, build: Callable[..., nn.Module]) -> None:
    embeddings, labels = batch
    loss = build(name)
    proxies = Proxies(loss, classes=6, dim=8, per_class=3, in_batch=0.1).double()
    value = proxies(embeddings, labels)
    reference = Reference(proxies.proxies.vectors.flatten(0, 1), torch.arange(6).repeat_interleave(3))
    torch.testing.assert_close(value, loss(embeddings, labels, reference) + 0.1 * loss(embeddings, labels))
    gradients = torch.autograd.grad(value, (embeddings, proxies.proxies.vectors))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_around_a_memory_the_batch_term_is_the_memory(batch: Batch) -> None:
    inner = OriginalContrastive()
    both = Proxies(Memory(inner, batches=2, start=0), classes=6, dim=8).double()
    apart, memory = Proxies(inner, classes=6, dim=8, in_batch=0).double(), Memory(inner, batches=2, start=0)
    apart.proxies = both.proxies
    torch.testing.assert_close(both(*batch), apart(*batch) + 0.1 * memory(*batch))


def test_a_memory_that_nothing_would_fill_is_refused() -> None:
    with pytest.raises(InputError, match="in_batch weighs the memory's term, got 0"):
        Proxies(Memory(Contrastive()), classes=6, dim=8, in_batch=0)


def test_embeddings_are_a_tensor(batch: Batch) -> None:
    embeddings, labels = batch
    with pytest.raises(InputError, match="embeddings must be a tensor, got list"):
        Proxies(Contrastive(), classes=6, dim=8)(embeddings.tolist(), labels)


def test_reset_is_in_place(batch: Batch) -> None:
    proxies = Proxies(Contrastive(), classes=6, dim=8).double()
    optimizer = torch.optim.SGD(proxies.parameters(), lr=1.0)
    fresh = torch.randn(6, 8, 8, dtype=torch.float64)
    proxies.proxies.reset(fresh)
    torch.testing.assert_close(proxies.proxies.vectors.detach(), fresh)
    proxies(*batch).backward()
    optimizer.step()
    assert not torch.equal(proxies.proxies.vectors.detach(), fresh)
    with pytest.raises(InputError, match=r"shape \(6, 8, 8\), got \(6, 8\)"):
        proxies.proxies.reset(fresh[:, 0])


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if issubclass(loss, ProxyLoss)])
def test_learning_rate_multiplier_is_found_on_the_module_that_owns_the_parameters(
    name: str, build: Callable[..., nn.Module]
) -> None:
    loss = build(name, lr_multiplier=7.0)
    owners = [module for module in loss.modules() if list(module.parameters(recurse=False))]
    assert [getattr(module, "lr_multiplier", 1.0) for module in owners] == [7.0]
    assert isinstance(owners[0], ClassProxies)


def test_a_loss_with_its_own_proxies_is_refused() -> None:
    with pytest.raises(InputError, match="SoftTriple, which brings its own set"):
        Proxies(SoftTriple(classes=3, dim=4), classes=3, dim=4)
    with pytest.raises(InputError, match="per_class must be at least 1, got 0"):
        Proxies(Contrastive(), classes=3, dim=4, per_class=0)
