"""Every pooling against its formula, written again as plain loops over one image in NumPy."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from sumpool.pooling import POOLINGS, Pooling, create_pooling
from sumpool.pooling.otp import sinkhorn

C, D, H, W = 6, 4, 3, 4
Array = np.ndarray
Parameters = dict[str, Array]
Formula = Callable[[Array, Parameters], Array]


def sigmoid(x: Array | float) -> Array:
    return 1 / (1 + np.exp(-np.asarray(x)))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def unit_ball(vector: Array) -> Array:
    return vector / max(1.0, float(np.linalg.norm(vector)))


def cost(features: Array, prototypes: Array) -> Array:
    return np.array([[np.linalg.norm(unit_ball(w) - unit_ball(f)) for f in features] for w in prototypes])


def gap(f: Array, p: Parameters) -> Array:
    return p["projection"] @ (sum(f) / len(f))


def gmp(f: Array, p: Parameters) -> Array:
    return p["projection"] @ np.array([max(f[:, c]) for c in range(C)])


def gap_gmp(f: Array, p: Parameters) -> Array:
    return gap(f, p) + gmp(f, p)


def power_mean(f: Array, power: float) -> Array:
    return np.array([np.mean([max(x, 1e-6) ** power for x in f[:, c]]) ** (1 / power) for c in range(f.shape[1])])


def gem(f: Array, p: Parameters) -> Array:
    return p["projection"] @ power_mean(f, p["power"])


def gemax(f: Array, p: Parameters) -> Array:
    """The primal form: a C×C ridge regression of 1 on the features."""
    return p["projection"] @ np.linalg.solve(sum(np.outer(x, x) for x in f) + np.eye(C), sum(f))


def lse(f: Array, p: Parameters) -> Array:
    return p["projection"] @ np.array([math.log(np.mean([math.exp(5 * x) for x in f[:, c]])) / 5 for c in range(C)])


def attention(f: Array, p: Parameters) -> Array:
    weights = softmax(np.array([x @ p["query"] / math.sqrt(C) for x in f]))
    return p["projection"] @ sum(w * x for w, x in zip(weights, f, strict=True))


def cbam(f: Array, p: Parameters) -> Array:
    def perceptron(x: Array) -> Array:
        hidden = np.maximum(p["channel.0.weight"] @ x + p["channel.0.bias"], 0)
        return p["channel.2.weight"] @ hidden + p["channel.2.bias"]

    gated = f * sigmoid(perceptron(f.mean(0)) + perceptron(f.max(0)))
    summary = np.zeros((2, H + 2, W + 2))
    summary[:, 1:-1, 1:-1] = np.stack([gated.mean(1), gated.max(1)]).reshape(2, H, W)
    total = np.zeros(C)
    for y in range(H):
        for x in range(W):
            response = (p["spatial.weight"][0] * summary[:, y : y + 3, x : x + 3]).sum() + p["spatial.bias"][0]
            total += sigmoid(response) * gated[y * W + x]
    return p["projection"] @ total / len(f)


def crow(f: Array, p: Parameters) -> Array:
    f = np.maximum(f, 0)
    totals = f.sum(1)
    places = np.sqrt(totals / np.linalg.norm(totals))
    channels = np.array([math.log(1 / np.mean(sigmoid(f[:, c]))) for c in range(C)])
    return p["projection"] @ sum(s * x * channels for s, x in zip(places, f, strict=True)) / sum(places)


def delf(f: Array, p: Parameters) -> Array:
    total, mass = np.zeros(C), 0.0
    for x in f:
        hidden = np.maximum(p["hidden.weight"] @ x + p["hidden.bias"], 0)
        score = math.log1p(math.exp((p["score.weight"] @ hidden + p["score.bias"]).item()))
        total, mass = total + score * x, mass + score
    return p["projection"] @ total / mass


def row_gate(covariance: Array, p: Parameters, name: str) -> Array:
    covariance = covariance / (np.trace(covariance) + 1e-6)
    rows = np.concatenate([covariance[i] @ p[f"{name}.rows"][i] for i in range(len(covariance))])
    return sigmoid(p[f"{name}.out.weight"] @ np.where(rows > 0, rows, 0.1 * rows) + p[f"{name}.out.bias"])


def gsop(f: Array, p: Parameters) -> Array:
    """Two by two cells: with H = 3 and W = 4, the middle row lies half in the upper and half in the lower cells."""
    y = f @ p["projection"].T
    r = np.maximum(y @ p["channel_reduction.weight"].T + p["channel_reduction.bias"], 0)
    channels = row_gate((r - r.mean(0)).T @ (r - r.mean(0)), p, "channel_gate")
    r = np.maximum(y @ p["place_reduction.weight"].T + p["place_reduction.bias"], 0).reshape(H, W, -1)
    halves = [r[0] + r[1] / 2, r[1] / 2 + r[2]]
    cells = np.stack([half[2 * k : 2 * k + 2].sum(0) / 3 for half in halves for k in range(2)])
    cells = cells - cells.mean(1, keepdims=True)
    g = row_gate(cells @ cells.T, p, "place_gate").reshape(2, 2).repeat(2, axis=1)
    places = np.stack([g[0], (g[0] + g[1]) / 2, g[1]]).reshape(-1)
    return np.mean([np.maximum(channels * v, s * v) for s, v in zip(places, y, strict=True)], axis=0)


def otp(f: Array, p: Parameters) -> Array:
    y = f @ p["projection"].T
    kernel = np.exp(-2 * cost(y, p["prototypes"]))
    m, n = kernel.shape
    v = np.ones(n)
    for _ in range(10):
        u = (1 / m) / (kernel @ v)
        v = (1 / n) / (kernel.T @ u)
    u = (1 / m) / (kernel @ v)
    return math.sqrt(m) * np.concatenate([sum(u[i] * kernel[i, j] * v[j] * y[j] for j in range(n)) for i in range(m)])


def solar(f: Array, p: Parameters) -> Array:
    def branch(name: str) -> Array:
        x = f @ p[f"{name}.weight"].T + p[f"{name}.bias"]
        x = (x - p[f"{name}_norm.running_mean"]) / np.sqrt(p[f"{name}_norm.running_var"] + 1e-5)
        return np.maximum(x * p[f"{name}_norm.weight"] + p[f"{name}_norm.bias"], 0)

    queries, keys, values = branch("query"), branch("key"), f @ p["value.weight"].T + p["value.bias"]
    refined = []
    for x, q in zip(f, queries, strict=True):
        gathered = softmax(keys @ q / math.sqrt(len(q))) @ values
        refined.append(x + p["out.weight"] @ gathered + p["out.bias"])
    return p["projection"] @ power_mean(np.array(refined), p["power"])


def tsmk(f: Array, p: Parameters) -> Array:
    maps, total, mass = f.reshape(H, W, C), np.zeros(D), 0.0
    for y in range(H):
        for x in range(W):
            smooth = maps[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2].reshape(-1, C).mean(0)
            norm = np.linalg.norm(maps[y, x])
            total, mass = total + norm * (p["projection"] @ smooth + p["bias"]), mass + norm
    return total / mass


def netvlad(f: Array, p: Parameters) -> Array:
    y = f @ p["projection"].T
    shares = np.array([softmax(p["assignment.weight"] @ x + p["assignment.bias"]) for x in y])
    sums = [sum(a * (x - c) for a, x in zip(shares[:, k], y, strict=True)) for k, c in enumerate(p["centres"])]
    return np.concatenate([v / np.linalg.norm(v) for v in sums])


def weldon(f: Array, p: Parameters) -> Array:
    y = np.sort(f @ p["projection"].T, axis=0)
    return np.array([sum(y[-3:, d]) + sum(y[:3, d]) for d in range(D)])


def transport_weights(f: Array, p: Parameters) -> Array:
    """GSP's weights by bisection on the mass equation, mass 0.3 and sharpness 5."""
    scores = np.log(np.exp(-5 * cost(f @ p["projection"].T, p["prototypes"])).sum(0))
    low, high = -100.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sigmoid(scores + middle).mean() < 0.3 else (low, middle)
    return sigmoid(scores + low) / (0.3 * len(f))


def gsp(f: Array, p: Parameters) -> Array:
    return p["projection"] @ (transport_weights(f, p) @ f)


def gmp_gsp(f: Array, p: Parameters) -> Array:
    return gmp(f, p) + gsp(f, p)


def gem_gsp(f: Array, p: Parameters) -> Array:
    return p["projection"] @ power_mean(f * (len(f) * transport_weights(f, p))[:, None], p["power"])


FORMULAS: dict[str, Formula] = {
    "gap": gap,
    "gmp": gmp,
    "gap+gmp": gap_gmp,
    "gem": gem,
    "gemax": gemax,
    "lse": lse,
    "attention": attention,
    "cbam": cbam,
    "crow": crow,
    "delf": delf,
    "gsop": gsop,
    "otp": otp,
    "solar": solar,
    "tsmk": tsmk,
    "netvlad": netvlad,
    "weldon": weldon,
    "gsp": gsp,
    "gmp+gsp": gmp_gsp,
    "gem+gsp": gem_gsp,
    "gap_attributes": gap,
}
SMALL: dict[str, dict[str, int]] = {
    "delf": {"filters": 5},
    "gsop": {"attention": 3, "cells": 2},
    "otp": {"prototypes": 2, "memory": 0},
    "netvlad": {"prototypes": 2},
} | {name: {"prototypes": 3, "memory": 0} for name in ("gsp", "gmp+gsp", "gem+gsp", "gap_attributes")}


def build(name: str) -> Pooling:
    """A small pooling whose every parameter and running statistic differs from its initial value."""
    torch.manual_seed(0)
    pool = create_pooling(name, C, D, **SMALL.get(name, {})).double().eval()
    with torch.no_grad():
        for tensor in [*pool.parameters(), *(b for n, b in pool.named_buffers() if "running" in n)]:
            tensor.add_(0.3 * torch.rand_like(tensor))
    return pool


def features_of(batch: int) -> torch.Tensor:
    return torch.randn(batch, C, H, W, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_every_pooling_has_a_formula() -> None:
    assert set(FORMULAS) == set(POOLINGS)


@pytest.mark.parametrize("name", POOLINGS)
def test_equals_the_formula_in_loops(name: str) -> None:
    pool, features = build(name), features_of(3)
    parameters = {key: value.numpy() for key, value in pool.state_dict().items()}
    vector = pool(features).vector.detach().numpy()
    for image in range(3):
        expected = FORMULAS[name](features[image].flatten(1).T.numpy(), parameters)
        np.testing.assert_allclose(vector[image], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["gap", "attention", "delf", "gsp", "gap_attributes"])
def test_the_vector_is_the_projection_of_the_weighted_sum(name: str) -> None:
    pool, features = build(name), features_of(2)
    out = pool(features)
    expected = torch.einsum("bn,bcn,dc->bd", out.weights, features.flatten(2), pool.projection)
    torch.testing.assert_close(out.vector, expected)


def test_weights_of_tsmk_are_those_of_the_raw_features() -> None:
    pool, features = build("tsmk"), features_of(2)
    out = pool(features)
    expected = torch.einsum("bn,bcn,dc->bd", out.weights, features.flatten(2), pool.projection) + pool.bias
    torch.testing.assert_close(out.vector, expected)


def test_tsmk_holds_the_norms_constant() -> None:
    """The slope is that of a sum with fixed weights."""
    pool, features = build("tsmk"), features_of(2).requires_grad_()
    out = pool(features)
    (gradient,) = torch.autograd.grad(out.vector.sum(), features)
    fixed = torch.einsum("bn,dc->bcn", out.weights.detach(), pool.projection)
    torch.testing.assert_close(gradient.flatten(2), fixed)


def test_attributes_are_mean_assignments() -> None:
    features = features_of(1)
    for name in ("gap_attributes", "netvlad"):
        pool = build(name)
        p = {key: value.numpy() for key, value in pool.state_dict().items()}
        y = features[0].flatten(1).T.numpy() @ p["projection"].T
        if name == "netvlad":
            shares = [softmax(p["assignment.weight"] @ x + p["assignment.bias"]) for x in y]
        else:
            shares = [softmax(-5 * column) for column in cost(y, p["prototypes"]).T]
        np.testing.assert_allclose(pool(features).attributes.detach().numpy()[0], np.mean(shares, 0), rtol=1e-6)


def test_generalised_max_answers_every_feature_equally() -> None:
    """With a vanishing ridge and independent features, f_jᵀ v = 1 for every j, however often a feature repeats."""
    pool = create_pooling("gemax", C, ridge=1e-9).double()
    few = torch.randn(1, 3, C, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    repeated = few[:, [0, 0, 0, 0, 1, 2]]
    for features in (few, repeated):
        torch.testing.assert_close(features[0] @ pool(features).vector[0], torch.ones(features.shape[1]).double())


def test_power_means_reach_average_and_maximum() -> None:
    features = features_of(2).abs() + 0.1
    average, maximum = features.mean((2, 3)), features.amax((2, 3))
    torch.testing.assert_close(create_pooling("gem", C, power=1.0).double()(features).vector, average)
    torch.testing.assert_close(
        create_pooling("gem", C, power=1e4).double()(features).vector, maximum, rtol=1e-3, atol=0
    )
    lse_average = create_pooling("lse", C, sharpness=1e-6).double()(features).vector
    torch.testing.assert_close(lse_average, average, rtol=1e-5, atol=0)
    torch.testing.assert_close(
        create_pooling("lse", C, sharpness=1e5).double()(features).vector, maximum, rtol=1e-3, atol=0
    )


def test_sinkhorn_reaches_the_linear_program() -> None:
    """Sharp and long enough, the plan costs what scipy's linear program costs, with both marginals uniform."""
    costs = torch.rand(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    plan = sinkhorn(costs[None], sharpness=500.0, steps=5000)[0]
    torch.testing.assert_close(plan.sum(1), torch.full((3,), 1 / 3).double())
    torch.testing.assert_close(plan.sum(0), torch.full((6,), 1 / 6).double(), rtol=1e-3, atol=0)
    marginals = np.concatenate([np.kron(np.eye(3), np.ones(6)), np.kron(np.ones(3), np.eye(6))])
    best = linprog(costs.flatten().numpy(), A_eq=marginals, b_eq=np.repeat([1 / 3, 1 / 6], [3, 6]))
    assert float((plan * costs).sum()) == pytest.approx(best.fun, rel=0.01)


def test_otp_picks_its_prototypes_once_in_place() -> None:
    torch.manual_seed(0)
    pool = create_pooling("otp", C, D, prototypes=2, memory=8)
    parameter, before = pool.prototypes, pool.prototypes.detach().clone()
    pool.eval()(torch.randn(8, C, H, W))
    assert torch.equal(pool.prototypes, before)
    pool.train()
    pool(torch.randn(6, C, H, W))
    assert torch.equal(pool.prototypes, before)
    pool(torch.randn(6, C, H, W))
    picked = pool.prototypes.detach().clone()
    assert pool.prototypes is parameter
    assert all(bool((pool.rows == row).all(1).any()) for row in picked)
    pool(torch.randn(6, C, H, W))
    assert torch.equal(pool.prototypes, picked)


def test_batch_norm_of_solar_sees_only_what_counts() -> None:
    pool, tokens = build("solar").train(), features_of(2).flatten(2).mT
    other = build("solar").train()
    mask = torch.zeros(2, H * W, dtype=torch.bool)
    mask[:, :7] = True
    torch.testing.assert_close(pool(tokens, mask).vector, other(tokens[:, :7]).vector)
    torch.testing.assert_close(pool.query_norm.running_mean, other.query_norm.running_mean)


def test_cells_of_gsop_average_what_counts() -> None:
    """Where all places look alike, hiding some of a cell's places changes no gate."""
    pool = build("gsop")
    alike = torch.randn(2, 1, D, dtype=torch.float64).expand(-1, H * W, -1)
    mask = torch.ones(2, H, W, dtype=torch.bool)
    mask[:, 0, 0] = mask[:, 2, 2] = False
    torch.testing.assert_close(pool._places(alike, mask.flatten(1), (H, W)), pool._places(alike, None, (H, W)))
