"""The contract of a pooling, run on every member of the table.

Poolings are tested at evaluation; what training adds (GSP's and OTP's memory, SOLAR's BatchNorm) is tested with them.
"""

import pytest
import torch
from torch import Tensor

from sumpool.errors import InputError
from sumpool.pooling import POOLINGS, Pooling, create_pooling
from sumpool.types import Pooled

CHANNELS, DIM, GRID = 6, 4, (4, 5)
# Sizes that keep the tests quick; memory 0 means that the prototypes are in use from the start.
SMALL: dict[str, dict[str, int]] = {
    "delf": {"filters": 5},
    "gsop": {"attention": 3, "cells": 2},
    "otp": {"prototypes": 2, "memory": 0},
    "netvlad": {"prototypes": 2},
    "gsp": {"prototypes": 3, "memory": 0},
    "gmp+gsp": {"prototypes": 3, "memory": 0},
    "gem+gsp": {"prototypes": 3, "memory": 0},
    "gap_attributes": {"prototypes": 3, "memory": 0},
}
BAD_SETTINGS = [
    ("gem", {"power": 0.0}),
    ("gemax", {"ridge": 0.0}),
    ("lse", {"sharpness": -1.0}),
    ("cbam", {"reduction": 0}),
    ("cbam", {"reduction": CHANNELS + 1}),
    ("cbam", {"kernel": 2}),
    ("delf", {"filters": 0}),
    ("gsop", {"attention": 0}),
    ("gsop", {"cells": 0}),
    ("otp", {"prototypes": 3}),
    ("otp", {"prototypes": 0}),
    ("otp", {"sharpness": -1.0}),
    ("otp", {"steps": 0}),
    ("otp", {"memory": 1}),
    ("solar", {"reduction": 0}),
    ("solar", {"power": 0.0}),
    ("netvlad", {"prototypes": 3}),
    ("weldon", {"top": 0}),
    ("weldon", {"bottom": 0}),
    ("gmp+gsp", {"mass": 0.0}),
    ("gem+gsp", {"mass": 1.5}),
    ("gap_attributes", {"sharpness": -1.0}),
]
every_pooling = pytest.mark.parametrize("name", POOLINGS)
NEEDS_GRID = [name for name in POOLINGS if create_pooling(name, CHANNELS).needs_grid]
SETS = [name for name in POOLINGS if name not in NEEDS_GRID]


def build(name: str, dim: int | None = DIM, dtype: torch.dtype = torch.float64) -> Pooling:
    """A small pooling at evaluation, moved away from initial values such as zero, where formulas could hide."""
    torch.manual_seed(0)
    pool = create_pooling(name, CHANNELS, dim, **SMALL.get(name, {}))
    with torch.no_grad():
        for parameter in pool.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return pool.to(dtype).eval()


def maps(batch: int = 3, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(batch, CHANNELS, *GRID, generator=torch.Generator().manual_seed(1), dtype=dtype)


def tokens_of(features: Tensor) -> Tensor:
    return features.flatten(2).mT.contiguous()


def assert_same(actual: Pooled, expected: Pooled, **tolerance: float) -> None:
    for field in ("vector", "weights", "attributes"):
        first, second = getattr(actual, field), getattr(expected, field)
        assert (first is None) == (second is None), field
        if first is not None:
            torch.testing.assert_close(first, second, **tolerance)


@every_pooling
@pytest.mark.parametrize("dim", [DIM, None])
def test_shapes_of_a_map(name: str, dim: int | None) -> None:
    pool = build(name, dim)
    out = pool(maps())
    assert out.vector.shape == (3, pool.out_features)
    assert dim is None or pool.out_features == dim
    assert out.grid == GRID
    assert out.weights is None or out.weights.shape == (3, GRID[0] * GRID[1])
    assert out.attributes is None or out.attributes.shape[0] == 3


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("dim", [DIM, None])
def test_tokens_are_a_map_without_grid(name: str, dim: int | None) -> None:
    pool = build(name, dim)
    out = pool(tokens_of(maps()))
    assert out.grid is None
    assert_same(out, pool(maps()))


@pytest.mark.parametrize("name", NEEDS_GRID)
def test_tokens_without_grid_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InputError, match=r"needs a map .* neighbourhoods"):
        build(name)(tokens_of(maps()))


@every_pooling
def test_images_are_independent(name: str) -> None:
    pool, features = build(name), maps()
    whole = pool(features)
    for image in range(3):
        alone = pool(features[image : image + 1])
        assert_same(alone, Pooled(*(field if field is None else field[image : image + 1] for field in whole[:3])))


@pytest.mark.parametrize("name", SETS)
def test_order_is_irrelevant(name: str) -> None:
    pool, tokens = build(name), tokens_of(maps())
    order = torch.randperm(tokens.shape[1], generator=torch.Generator().manual_seed(2))
    ordered, shuffled = pool(tokens), pool(tokens[:, order])
    weights = None if ordered.weights is None else ordered.weights[:, order]
    assert_same(shuffled, ordered._replace(weights=weights))


@every_pooling
def test_weights_and_attributes_are_shares(name: str) -> None:
    out = build(name)(maps())
    for shares in (out.weights, out.attributes):
        if shares is not None:
            assert bool((shares >= 0).all())
            torch.testing.assert_close(shares.sum(1), torch.ones(3, dtype=torch.float64))


@every_pooling
def test_gradients_are_those_of_the_formula(name: str) -> None:
    pool = build(name)
    parameters = dict(pool.named_parameters())

    def run(features: Tensor, *values: Tensor) -> list[Tensor]:
        out = torch.func.functional_call(pool, dict(zip(parameters, values, strict=True)), (features,))
        return [field for field in out[:3] if field is not None and field.requires_grad]

    inputs = (maps(2).requires_grad_(), *parameters.values())
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


EXTREMES = {
    "large": lambda noise: 1e3 * noise,
    "equally large": lambda noise: torch.full_like(noise, 1e3),
    "zero": torch.zeros_like,
    "identical": lambda noise: noise[..., :1, :1].expand_as(noise),
    "one spike": lambda noise: torch.zeros_like(noise).index_fill(3, torch.tensor([0]), 1e3),
}


@every_pooling
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_inputs_stay_finite(name: str, dtype: torch.dtype, kind: str) -> None:
    pool = build(name, dtype=dtype)
    features = EXTREMES[kind](maps(dtype=torch.float32)).to(dtype).requires_grad_()
    out = pool(features)
    assert out.vector.dtype == dtype
    present = [field for field in out[:3] if field is not None]
    assert all(bool(field.isfinite().all()) for field in present)
    sum((field.float() * torch.linspace(-1, 1, field.shape[1])).mean() for field in present).backward()
    for tensor in (features, *pool.parameters()):
        assert tensor.grad is None or bool(tensor.grad.isfinite().all())


@every_pooling
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_is_close(name: str, dtype: torch.dtype) -> None:
    pool, features = build(name, dtype=torch.float32), maps(dtype=torch.float32)
    with torch.autocast("cpu", dtype=dtype):
        mixed = pool(features)
    plain = pool(features)
    torch.testing.assert_close(mixed.vector.float(), plain.vector, rtol=0.05, atol=0.05)


@every_pooling
def test_masked_features_have_no_influence(name: str) -> None:
    pool, features = build(name), maps()
    mask = torch.rand(3, *GRID, generator=torch.Generator().manual_seed(3)) < 0.6
    hidden = ~mask.unsqueeze(1)
    clean = features.masked_fill(hidden, 0).requires_grad_()
    dirty = features.masked_fill(hidden, float("nan")).requires_grad_()
    out = pool(dirty, mask)
    assert_same(out, pool(clean, mask))
    assert out.weights is None or bool((out.weights[~mask.flatten(1)] == 0).all())
    for shares in (out.weights, out.attributes):
        assert shares is None or torch.allclose(shares.sum(1), torch.ones(3, dtype=torch.float64))
    gradient, expected = (torch.autograd.grad(pool(x, mask).vector.square().sum(), x)[0] for x in (dirty, clean))
    torch.testing.assert_close(gradient, expected)
    assert bool((gradient.masked_select(hidden) == 0).all())


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("kept", [slice(3, 14), slice(3, 5)], ids=["many", "two"])
def test_masking_equals_dropping(name: str, kept: slice) -> None:
    pool, tokens = build(name), tokens_of(maps())
    mask = torch.zeros(3, tokens.shape[1], dtype=torch.bool)
    mask[:, kept] = True
    masked, dropped = pool(tokens, mask), pool(tokens[:, kept])
    weights = None if masked.weights is None else masked.weights[:, kept]
    assert_same(masked._replace(weights=weights), dropped)


@pytest.mark.parametrize("name", ["cbam", "tsmk"])
def test_masking_the_border_equals_cropping(name: str) -> None:
    pool, features = build(name), maps()
    mask = torch.ones(3, *GRID, dtype=torch.bool)
    mask[:, :, -1] = mask[:, 0] = False
    torch.testing.assert_close(pool(features, mask).vector, pool(features[:, :, 1:, :-1].contiguous()).vector)


@every_pooling
def test_an_all_true_mask_changes_nothing(name: str) -> None:
    pool, features = build(name), maps()
    assert_same(pool(features, torch.ones(3, *GRID, dtype=torch.bool)), pool(features))


@every_pooling
def test_empty_sets_are_refused(name: str) -> None:
    pool = build(name)
    with pytest.raises(InputError, match="without local features"):
        pool(torch.zeros(2, CHANNELS, 0, 3, dtype=torch.float64))
    mask = torch.ones(3, *GRID, dtype=torch.bool)
    mask[1] = False
    with pytest.raises(InputError, match="mask hides every local feature of image 1"):
        pool(maps(), mask)


@every_pooling
def test_wrong_shapes_are_refused(name: str) -> None:
    pool = build(name)
    with pytest.raises(InputError, match=f"built for {CHANNELS} channels, got 7"):
        pool(torch.zeros(2, 7, *GRID, dtype=torch.float64))
    with pytest.raises(InputError, match="got shape"):
        pool(torch.zeros(2, CHANNELS, dtype=torch.float64))
    with pytest.raises(InputError, match="mask must be boolean"):
        pool(maps(), torch.ones(3, *GRID))
    with pytest.raises(InputError, match="mask must be boolean"):
        pool(maps(), torch.ones(3, *reversed(GRID), dtype=torch.bool))


@every_pooling
def test_no_images_give_no_vectors(name: str) -> None:
    out = build(name)(maps()[:0])
    assert out.vector.shape == (0, build(name).out_features)


@every_pooling
def test_one_local_feature_is_enough(name: str) -> None:
    out = build(name)(maps()[:, :, :1, :1])
    assert bool(out.vector.isfinite().all())
    assert out.weights is None or torch.allclose(out.weights, torch.ones(3, 1, dtype=torch.float64))


@every_pooling
def test_state_round_trip(name: str) -> None:
    pool = build(name)
    other = create_pooling(name, CHANNELS, DIM, **SMALL.get(name, {})).double().eval()
    other.load_state_dict(pool.state_dict())
    assert_same(other(maps()), pool(maps()), rtol=0, atol=0)


# PyTorch's own tracing of an autograd function warns.
trace_warning = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


@trace_warning
@every_pooling
def test_compiles_without_graph_breaks(name: str) -> None:
    torch.compiler.reset()
    pool, features = build(name), maps().requires_grad_()
    compiled = torch.compile(pool, fullgraph=True, backend="aot_eager")
    out, expected = compiled(features), pool(features)
    assert_same(out, expected)
    gradient, reference = (torch.autograd.grad(o.vector.square().sum(), features)[0] for o in (out, expected))
    torch.testing.assert_close(gradient, reference)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised while PyTorch imports its own compiler
@pytest.mark.slow
@every_pooling
def test_compiles_to_machine_code(name: str) -> None:
    torch.compiler.reset()
    pool, features = build(name, dtype=torch.float32), maps(dtype=torch.float32)
    assert_same(torch.compile(pool, fullgraph=True)(features), pool(features), rtol=1e-4, atol=1e-5)


@every_pooling
def test_exports_with_dynamic_batch_and_image_size(name: str) -> None:
    pool = build(name)
    size = {0: torch.export.Dim("batch"), 2: torch.export.Dim("height"), 3: torch.export.Dim("width")}
    with torch.no_grad():
        program = torch.export.export(pool, (maps(),), dynamic_shapes={"features": size})
    other = torch.randn(5, CHANNELS, 6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    for features in (maps(), other):
        assert_same(Pooled(*program.module()(features)), pool(features))


@pytest.mark.parametrize(("name", "settings"), BAD_SETTINGS)
def test_settings_out_of_range_fail_when_written(name: str, settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        create_pooling(name, CHANNELS, DIM, **{**SMALL.get(name, {}), **settings})


@every_pooling
def test_sizes_and_unknown_settings_fail_when_written(name: str) -> None:
    with pytest.raises(InputError, match=r"at least 1|multiple of"):
        create_pooling(name, CHANNELS, 0)
    with pytest.raises(InputError, match="in_features and dim must be at least 1"):
        create_pooling(name, 0)
    with pytest.raises(InputError, match="has no setting 'tempersture'"):
        create_pooling(name, CHANNELS, DIM, tempersture=1.0)


@every_pooling
def test_every_pooling_has_a_file_a_formula_and_a_line_in_the_list(name: str) -> None:
    pooling = POOLINGS[name]
    assert ".. math::" in (pooling.__doc__ or "")
    assert len((pooling.__doc__ or "").split("\n", 1)[0]) < 120
    assert pooling.__module__.rsplit(".", 1)[1] == name.replace("+", "_")
