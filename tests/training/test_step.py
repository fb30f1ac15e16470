"""The step and what it is made of, against plain PyTorch."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from sumpool.backbones import create_backbone
from sumpool.embedder import Embedder
from sumpool.errors import InputError
from sumpool.losses import create_objective
from sumpool.pooling import create_pooling
from sumpool.training.average import Average
from sumpool.training.checkpoint import load_state, save_state
from sumpool.training.loop import forward_model
from sumpool.training.optimiser import parameter_groups, set_learning_rate
from sumpool.training.processes import Processes
from sumpool.training.step import Stepper
from sumpool.types import Batch

CPU = torch.device("cpu")


def embedder(memory: int = 0, pooling: str = "gsp") -> Embedder:
    torch.manual_seed(0)
    settings = {"prototypes": 4, "memory": memory} if pooling == "gsp" else {}
    backbone = create_backbone("tiny", freeze_batchnorm=True)
    return Embedder(backbone, create_pooling(pooling, backbone.out_features, 8, **settings)).train()


def batch(seed: int = 0, count: int = 12) -> Batch:
    images = torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed))
    return Batch(images, torch.arange(count) // 3, torch.arange(count))


def stepper(model: Embedder, loss: str = "zsr/contrastive", **settings: object) -> Stepper:
    torch.manual_seed(1)
    objective = create_objective(loss, classes=4, dim=8)
    optimizer = torch.optim.Adam(parameter_groups(model, objective, 1e-2), lr=1e-3)
    return Stepper(model, objective, optimizer, CPU, **settings)


@pytest.mark.parametrize("memory", [0, 20])
@pytest.mark.parametrize("chunk", [5, 12])
def test_chunks_give_the_gradient_of_the_whole_batch(chunk: int, memory: int) -> None:
    """With memory 20 the prototypes are picked during the second batch, in the middle of its chunks."""
    whole, parts = stepper(embedder(memory)), stepper(embedder(memory), chunk=chunk)
    for seed in range(3):
        values = [step(batch(seed)) for step in (whole, parts)]
        for ours, theirs in zip(parts.trained, whole.trained, strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(values[1]["total"], values[0]["total"])
    assert parts.model.pooling.ready == whole.model.pooling.ready


@pytest.mark.slow
def test_a_compiled_model_trains_as_the_plain_one() -> None:
    """The prototypes are picked in the second step, while the compiled graph runs."""
    plain, compiled = embedder(memory=20), embedder(memory=20)
    alone = Processes(0, 1, CPU)
    steps = [stepper(plain), stepper(compiled)]
    steps[1].model = forward_model(compiled, True, alone)
    for seed in range(4):
        values = [step(batch(seed)) for step in steps]
        torch.testing.assert_close(values[1]["total"], values[0]["total"], rtol=1e-4, atol=1e-5)
    assert compiled.pooling.ready
    torch.testing.assert_close(compiled.state_dict(), plain.state_dict(), rtol=1e-3, atol=1e-4)


def test_chunks_without_attributes() -> None:
    whole, parts = stepper(embedder(pooling="gap"), "triplet"), stepper(embedder(pooling="gap"), "triplet", chunk=4)
    for step in (whole, parts):
        step(batch())
    for ours, theirs in zip(parts.trained, whole.trained, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_a_step_is_what_plain_pytorch_does() -> None:
    ours = stepper(embedder(), clip_norm=0.01)
    model, objective = copy.deepcopy(ours.model), copy.deepcopy(ours.objective)
    plain = torch.optim.Adam(parameter_groups(model, objective, 1e-2), lr=1e-3)
    for seed in range(3):
        ours(batch(seed))
        plain.zero_grad()
        out = model(batch(seed).images)
        objective(out.vector, batch(seed).labels, out.attributes).total.backward()
        # In the optimizer's order, for a norm is rounded by the order of its terms.
        nn.utils.clip_grad_norm_([value for group in plain.param_groups for value in group["params"]], 0.01)
        plain.step()
    for mine, theirs in zip(ours.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_near_full_precision(precision: str) -> None:
    full, half = stepper(embedder()), stepper(embedder(), precision=precision)
    for seed in range(5):
        values = [step(batch(seed))["total"] for step in (full, half)]
        assert abs(float(values[0] - values[1])) < 0.05
    assert half.scaler.is_enabled() == (precision == "fp16")


def test_adjusted_gradients_are_clipped() -> None:
    step = stepper(embedder(), clip_norm=1.0)
    reached = [parameter for parameter in step.trained if parameter.requires_grad]
    values = step(batch(), lambda: [parameter.grad.fill_(3.0) for parameter in reached if parameter.grad is not None])
    count = sum(parameter.numel() for parameter in reached if parameter.grad is not None)
    assert float(values["gradient norm"]) == pytest.approx(3 * count**0.5, rel=1e-4)
    norm = torch.stack([parameter.grad.norm() for parameter in reached if parameter.grad is not None]).norm()
    assert float(norm) == pytest.approx(1.0, rel=1e-4)


def test_groups_keep_decay_off_vectors_and_proxies_and_multiply_rates() -> None:
    model = embedder()
    objective = create_objective("proxy_anchor", classes=4, dim=8)
    groups = parameter_groups(model, objective, 0.1)
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert all(decay[id(p)] == (0.1 if p.dim() > 1 else 0) for p in model.parameters() if p.requires_grad)
    (proxies,) = [group for group in groups if group["multiplier"] == 100]
    assert proxies["params"][0] is objective.proxies.vectors
    assert proxies["part"] == "head"
    assert sum(len(group["params"]) for group in groups) == len({*map(id, decay)})
    optimizer = torch.optim.Adam(groups, lr=1e-3)
    set_learning_rate(optimizer, 0.5, warming_up=True)
    assert {(group["part"], group["lr"]) for group in optimizer.param_groups} == {
        ("backbone", 0.0),
        ("head", 0.5),
        ("head", 50.0),
    }


def test_average_follows_its_formula_and_copies_buffers() -> None:
    model = embedder(memory=24)
    start = [parameter.detach().clone() for parameter in model.parameters()]
    average = Average(model, 0.75)
    step = stepper(model)
    step(batch())
    average.update(model)
    for mean, before, now in zip(average.model.parameters(), start, model.parameters(), strict=True):
        torch.testing.assert_close(mean, 0.75 * before + 0.25 * now.detach())
    assert int(average.model.pooling.seen) == int(model.pooling.seen) == 12


@pytest.mark.parametrize("resumed", [False, True])
def test_average_takes_the_prototypes_over_when_they_are_picked(resumed: bool) -> None:
    model = embedder(memory=24)
    average, step = Average(model, 0.999), stepper(model)
    for seed in range(2):
        if resumed:
            state = average.model.state_dict()
            average = Average(embedder(memory=24), 0.999)
            average.model.load_state_dict(state)
        step(batch(seed))
        average.update(model)
    assert average.model.pooling.ready
    assert torch.equal(average.model.pooling.prototypes, model.pooling.prototypes)
    picked = model.pooling.prototypes.detach().clone()
    step(batch(2))
    average.update(model)
    torch.testing.assert_close(average.model.pooling.prototypes, picked.lerp(model.pooling.prototypes.detach(), 0.001))


@pytest.mark.parametrize("clip_norm", [0.0, 10.0])
def test_a_gradient_that_is_not_finite_changes_no_weight(clip_norm: float) -> None:
    step = stepper(embedder(), clip_norm=clip_norm)
    before = copy.deepcopy(step.model.state_dict())
    with pytest.raises(InputError, match=r"the loss or its gradient is not finite .*gradient norm nan"):
        step(batch(), lambda: step.model.pooling.prototypes.grad.fill_(torch.nan))
    torch.testing.assert_close(step.model.state_dict(), before, rtol=0, atol=0)


def test_the_scaler_leaves_out_a_float16_step_that_overflows() -> None:
    step = stepper(embedder(), precision="fp16")
    before, scale = copy.deepcopy(step.model.state_dict()), step.scaler.get_scale()
    step.model.pooling.projection.register_hook(lambda grad: torch.full_like(grad, torch.inf))
    step(batch())
    torch.testing.assert_close(step.model.state_dict(), before, rtol=0, atol=0)
    assert step.scaler.get_scale() < scale


def test_state_keeps_types_and_values(tmp_path: Path) -> None:
    state = {
        "a": torch.arange(3),
        5: [1.5, None, "x", torch.tensor(2.0, dtype=torch.float64)],
        "empty": {},
        "t": [True],
    }
    save_state(tmp_path / "state", state)
    assert str(load_state(tmp_path / "state")) == str(state)
