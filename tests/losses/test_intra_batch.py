"""Message passing between the members of a batch."""

import math

import pytest
import torch
from torch import nn

from sumpool import GSP
from sumpool.errors import InputError
from sumpool.losses import IntraBatch, create_objective
from sumpool.losses.intra_batch import MessagePassing


def test_a_step_is_attention_and_network_with_residuals() -> None:
    torch.manual_seed(0)
    step = MessagePassing(dim=6, heads=2).double()
    nodes = torch.randn(5, 6, dtype=torch.float64)
    query, key, value = (step.query_key_value(nodes)[:, start : start + 6] for start in (0, 6, 12))
    heads = []
    for head in (slice(0, 3), slice(3, 6)):
        attention = (query[:, head] @ key[:, head].T / math.sqrt(3)).softmax(1)
        heads.append(attention @ value[:, head])
    hidden = step.attention_norm(nodes + step.output(torch.cat(heads, 1)))
    expected = step.network_norm(hidden + step.second(step.first(hidden).relu()))
    torch.testing.assert_close(step(nodes), expected)


def test_the_members_of_the_batch_influence_each_other() -> None:
    step = MessagePassing(dim=6, heads=2)
    nodes = torch.randn(5, 6, requires_grad=True)
    (gradient,) = torch.autograd.grad(step(nodes)[0].square().sum(), nodes)
    assert (gradient.abs().sum(1) > 0).all()


def test_loss_is_both_smoothed_cross_entropies() -> None:
    torch.manual_seed(0)
    loss = IntraBatch(classes=4, dim=6, steps=2, heads=3, temperature=0.5, smoothing=0.2, auxiliary=0.7)
    embeddings, labels = torch.randn(5, 6), torch.tensor([0, 3, 3, 1, 0])

    def entropy(logits: torch.Tensor) -> torch.Tensor:
        logs = (logits / 0.5).log_softmax(1)
        return -(0.8 * logs[torch.arange(5), labels] + 0.2 * logs.mean(1)).mean()

    refined = loss.steps[1](loss.steps[0](embeddings))
    expected = entropy(loss.classify_refined(refined)) + 0.7 * entropy(loss.classify_embedding(embeddings))
    torch.testing.assert_close(loss(embeddings, labels), expected)


def test_every_parameter_carries_the_multiplier() -> None:
    loss = IntraBatch(classes=4, dim=8, lr_multiplier=5.0)
    owners = [module for module in loss.modules() if list(module.parameters(recurse=False))]
    assert {getattr(module, "lr_multiplier", 1.0) for module in owners} == {5.0}


def test_it_learns_a_separable_batch() -> None:
    torch.manual_seed(0)
    loss = IntraBatch(classes=3, dim=8, smoothing=0.0)
    embeddings = nn.Parameter(torch.randn(12, 8))
    optimizer = torch.optim.Adam([embeddings, *loss.parameters()], lr=0.02)
    labels = torch.arange(12) % 3
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(embeddings, labels)
        value.backward()
        optimizer.step()
    assert loss.classify_embedding(embeddings).argmax(1).equal(labels)
    assert value < 0.5


def test_as_the_head_of_generalized_sum_pooling() -> None:
    torch.manual_seed(0)
    pool = GSP(in_features=16, dim=8, prototypes=4, memory=0)
    objective = create_objective("zsr/libc", classes=3, dim=8)
    pooled = pool(torch.randn(6, 16, 3, 3))
    total, values = objective(pooled.vector, [0, 1, 2, 0, 1, 2], pooled.attributes)
    total.backward()
    assert set(values) == {"libc", "zsr", "total"}
    assert pool.prototypes.grad is not None
    assert pool.prototypes.grad.abs().sum() > 0


def test_heads_must_divide_the_dimension() -> None:
    with pytest.raises(InputError, match="heads must divide dim, got 4 heads for 6"):
        IntraBatch(classes=3, dim=6)
