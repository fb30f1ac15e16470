"""The poolings as a reader of the papers would write them: the peers of `benchmarks/poolings.py`.

Each takes a map (B,C,H,W) and the pooling whose parameters it borrows, and returns the pooled vector (B,D), equal to
ours up to a positive factor per image.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sumpool.ops.transport_reference import paper_iteration

Textbook = Callable[[Tensor, Any], Any]


def conv(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.conv2d(x, weight[:, :, None, None], bias)


def gap(x: Tensor, p: Any) -> Any:
    return F.linear(F.adaptive_avg_pool2d(x, 1).flatten(1), p.projection)


def gmp(x: Tensor, p: Any) -> Any:
    return F.linear(F.adaptive_max_pool2d(x, 1).flatten(1), p.projection)


def gap_gmp(x: Tensor, p: Any) -> Any:
    return F.linear((F.adaptive_avg_pool2d(x, 1) + F.adaptive_max_pool2d(x, 1)).flatten(1), p.projection)


def generalised_mean(x: Tensor, power: Tensor) -> Tensor:
    return x.clamp(min=1e-6).pow(power).mean((2, 3)).pow(1 / power)


def gem(x: Tensor, p: Any) -> Any:
    return F.linear(generalised_mean(x, p.power), p.projection)


def gemax(x: Tensor, p: Any) -> Any:
    f = x.flatten(2)
    system = f.mT @ f + p.ridge * torch.eye(f.shape[2])
    alpha = torch.linalg.solve(system, torch.ones(*f.shape[::2], 1))
    return F.linear((f @ alpha).squeeze(2), p.projection)


def lse(x: Tensor, p: Any) -> Any:
    smooth = torch.logsumexp(p.sharpness * x.flatten(2), 2) - math.log(x.shape[2] * x.shape[3])
    return F.linear(smooth / p.sharpness, p.projection)


def attention(x: Tensor, p: Any) -> Any:
    scores = torch.einsum("bcn,c->bn", x.flatten(2), p.query) / math.sqrt(x.shape[1])
    return F.linear(torch.einsum("bcn,bn->bc", x.flatten(2), scores.softmax(1)), p.projection)


def cbam(x: Tensor, p: Any) -> Any:
    gate = p.channel(x.mean((2, 3))) + p.channel(x.amax((2, 3)))
    x = x * gate.sigmoid()[:, :, None, None]
    summary = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
    return F.linear((x * p.spatial(summary).sigmoid()).mean((2, 3)), p.projection)


def crow(x: Tensor, p: Any) -> Any:
    x = x.relu()
    places = x.sum(1, keepdim=True)
    places = (places / places.flatten(1).norm(dim=1)[:, None, None, None]).sqrt()
    channels = -x.sigmoid().mean((2, 3), keepdim=True).log()
    return F.linear((x * places * channels).mean((2, 3)), p.projection)


def delf(x: Tensor, p: Any) -> Any:
    hidden = conv(x, p.hidden.weight, p.hidden.bias).relu()
    scores = F.softplus(conv(hidden, p.score.weight, p.score.bias))
    return F.linear((x * scores).mean((2, 3)), p.projection)


def row_gate(samples: Tensor, gate: Any) -> Any:
    product = samples @ samples.mT
    trace = product.diagonal(dim1=1, dim2=2).sum(1)
    rows = torch.einsum("bxy,xyk->bxk", product / (trace + 1e-6)[:, None, None], gate.rows)
    return gate.out(F.leaky_relu(rows.flatten(1), 0.1)).sigmoid()


def gsop(x: Tensor, p: Any) -> Any:
    y = conv(x, p.projection)
    reduced = conv(y, p.channel_reduction.weight, p.channel_reduction.bias).relu().flatten(2)
    channels = row_gate(reduced - reduced.mean(2, keepdim=True), p.channel_gate)
    reduced = conv(y, p.place_reduction.weight, p.place_reduction.bias).relu()
    cells = F.adaptive_avg_pool2d(reduced, p.cells).flatten(2).mT
    gate = row_gate(cells - cells.mean(2, keepdim=True), p.place_gate).unflatten(1, (1, p.cells, p.cells))
    places = F.interpolate(gate, x.shape[2:], mode="area")
    return torch.maximum(y * channels[:, :, None, None], y * places).mean((2, 3))


def unit_ball(vectors: Tensor) -> Tensor:
    unit: Tensor = vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1)
    return unit


def prototype_cost(y: Tensor, p: Any) -> Tensor:
    return torch.cdist(unit_ball(p.prototypes).expand(len(y), -1, -1), unit_ball(y.flatten(2).mT))


def otp(x: Tensor, p: Any) -> Any:
    y = conv(x, p.projection)
    logits = -p.sharpness * prototype_cost(y, p)
    m, n = logits.shape[1:]
    u, v = torch.zeros_like(logits[:, :, :1]), torch.zeros_like(logits[:, :1])
    for _ in range(p.steps):
        u = -math.log(m) - torch.logsumexp(logits + v, 2, keepdim=True)
        v = -math.log(n) - torch.logsumexp(logits + u, 1, keepdim=True)
    u = -math.log(m) - torch.logsumexp(logits + v, 2, keepdim=True)
    return math.sqrt(m) * ((logits + u + v).exp() @ y.flatten(2).mT).flatten(1)


def solar(x: Tensor, p: Any) -> Any:
    query = p.query_norm(conv(x, p.query.weight, p.query.bias).flatten(2)).relu()
    key = p.key_norm(conv(x, p.key.weight, p.key.bias).flatten(2)).relu()
    value = conv(x, p.value.weight, p.value.bias).flatten(2)
    weights = (query.mT @ key * query.shape[1] ** -0.5).softmax(2)
    gathered = (value @ weights.mT).unflatten(2, x.shape[2:])
    return F.linear(generalised_mean(x + conv(gathered, p.out.weight, p.out.bias), p.power), p.projection)


def tsmk(x: Tensor, p: Any) -> Any:
    smooth = F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
    return (conv(smooth, p.projection, p.bias) * x.detach().norm(dim=1, keepdim=True)).mean((2, 3))


def netvlad(x: Tensor, p: Any) -> Any:
    y = conv(x, p.projection)
    shares = conv(y, p.assignment.weight, p.assignment.bias).softmax(1).flatten(2)
    residuals = y.flatten(2)[:, None] - p.centres[None, :, :, None]
    return F.normalize((shares[:, :, None] * residuals).sum(3), dim=2).flatten(1)


def weldon(x: Tensor, p: Any) -> Any:
    ordered = conv(x, p.projection).flatten(2).sort(dim=2, descending=True).values
    return ordered[:, :, : p.top].sum(2) + ordered[:, :, -p.bottom :].sum(2)


def gsp(x: Tensor, p: Any) -> Any:
    y = conv(x, p.projection)
    weights = paper_iteration(prototype_cost(y, p), p.mass, p.sharpness).weights
    return (y.flatten(2) * weights[:, None]).sum(2)


def gmp_gsp(x: Tensor, p: Any) -> Any:
    return gmp(x, p) + gsp(x, p)


def gem_gsp(x: Tensor, p: Any) -> Any:
    y = conv(x, p.projection)
    weights = paper_iteration(prototype_cost(y, p), p.mass, p.sharpness).weights
    scaled = x * (weights * weights.shape[1]).unflatten(1, x.shape[2:]).unsqueeze(1)
    return F.linear(generalised_mean(scaled, p.power), p.projection)


def gap_attributes(x: Tensor, p: Any) -> Any:
    y = conv(x, p.projection)
    attributes = (-p.sharpness * prototype_cost(y, p)).softmax(1).mean(2)
    return y.mean((2, 3)) + 0 * attributes.sum()  # the attributes belong to the work


TEXTBOOK: dict[str, Textbook] = {
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
    "gap_attributes": gap_attributes,
}
