"""The memory: ring, start, self-matches, checkpoints."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.losses import (
    LOSSES,
    Contrastive,
    Memory,
    MultiSimilarity,
    OriginalContrastive,
    PairLoss,
    ProxyAnchor,
    Reference,
)


def batches(count: int, rows: int = 6) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(rows, 5, generator=generator), torch.randint(3, (rows,), generator=generator))
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if issubclass(loss, PairLoss)])
def test_any_pair_loss_sees_the_last_batches(name: str, build: Callable[..., nn.Module]) -> None:
    loss = build(name).float()
    memory = Memory(loss, batches=3, start=0, weight=0.5)
    seen = batches(7)
    for embeddings, labels in seen:
        value = memory(embeddings, labels)
    # The ring after 7 batches of 3 slots holds batch 6 (0-based) in slot 0, then 4 and 5.
    ring = [seen[6], seen[4], seen[5]]
    reference = Reference(torch.cat([e for e, _ in ring]), torch.cat([y for _, y in ring]), torch.arange(6))
    torch.testing.assert_close(value, loss(*seen[6]) + 0.5 * loss(*seen[6], reference))


def test_starts_after_the_given_steps_with_everything_seen_so_far() -> None:
    loss = OriginalContrastive()
    memory = Memory(loss, batches=4, start=2)
    first, second, third = batches(3)
    assert memory(*first) == loss(*first)
    assert memory(*second) == loss(*second)
    reference = Reference(
        torch.cat([first[0], second[0], third[0]]), torch.cat([first[1], second[1], third[1]]), torch.arange(12, 18)
    )
    torch.testing.assert_close(memory(*third), loss(*third) + loss(*third, reference))


def test_raw_embeddings_are_kept_and_no_gradient_reaches_them() -> None:
    memory = Memory(Contrastive(), batches=2, start=0)
    embeddings = (torch.randn(4, 3) * 10).requires_grad_()
    memory(embeddings, [0, 0, 1, 1]).backward()
    torch.testing.assert_close(memory.embeddings[:4], embeddings.detach())
    assert not memory.embeddings.requires_grad


def test_evaluation_stores_nothing() -> None:
    memory = Memory(Contrastive(), batches=2, start=0).eval()
    embeddings, labels = batches(1)[0]
    assert memory(embeddings, labels) == Contrastive()(embeddings, labels)
    assert memory.embeddings.numel() == 0


def test_a_checkpoint_goes_on_where_it_stopped() -> None:
    seen = batches(6)
    straight = Memory(MultiSimilarity(), batches=3, start=2)
    expected = [straight(*batch) for batch in seen]
    first = Memory(MultiSimilarity(), batches=3, start=2)
    for batch in seen[:4]:
        first(*batch)
    resumed = Memory(MultiSimilarity(), batches=3, start=2)
    resumed.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    assert [resumed(*batch) for batch in seen[4:]] == expected[4:]


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match="ProxyAnchor, which brings its own set"):
        Memory(ProxyAnchor(classes=3, dim=4))
    with pytest.raises(InputError, match="batches must be at least 1, got 0"):
        Memory(Contrastive(), batches=0)
    memory = Memory(Contrastive(), batches=2)
    memory(torch.randn(4, 3), [0, 0, 1, 1])
    with pytest.raises(InputError, match=r"holds \(8, 3\) since its first batch, got a batch of \(4, 5\)"):
        memory(torch.randn(4, 5), [0, 0, 1, 1])
