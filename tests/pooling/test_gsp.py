"""Generalized sum pooling: its formula as loops, its prototypes' life, and its special cases."""

import copy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sumpool import GSP
from sumpool.errors import InputError
from sumpool.ops.k_center import greedy_k_center
from sumpool.ops.transport_reference import paper_iteration
from sumpool.pooling import GMPGSP, GeMGSP
from sumpool.pooling.gsp import prototype_cost


def gsp(kind: type[GSP] = GSP, **settings: object) -> GSP:
    """A small GSP in float64 that is ready at once."""
    torch.manual_seed(0)
    return kind(**{"in_features": 6, "dim": 4, "prototypes": 3, "memory": 0, **settings}).double()


def features(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def ball(vector: Tensor) -> Tensor:
    return vector / vector.norm().clamp_min(1)


def test_cost_is_the_distance_in_the_unit_ball() -> None:
    local, prototypes = features(2, 5, 4), 0.7 * features(3, 4)
    cost = prototype_cost(local, prototypes)
    for b in range(2):
        for i in range(3):
            for j in range(5):
                assert float(cost[b, i, j]) == pytest.approx(float((ball(prototypes[i]) - ball(local[b, j])).norm()))
    assert {float(v.norm()) > 1 for v in local[0]} == {True, False}, "both sides of the ball must be seen"


def test_cost_of_a_feature_on_its_prototype_has_no_gradient() -> None:
    prototypes = torch.tensor([[0.6, 0.0], [0.0, 0.5]], requires_grad=True)
    cost = prototype_cost(torch.tensor([[[0.6, 0.0]]]), prototypes)
    assert float(cost[0, 0, 0].detach()) < 1e-3
    (grad,) = torch.autograd.grad(cost.sum(), prototypes)
    assert grad.isfinite().all()
    assert not grad[0].any()


def test_equals_the_published_formula() -> None:
    pool, maps = gsp(), features(2, 6, 3, 2)
    out = pool(maps)
    assert pool.projection is not None
    for b in range(2):
        local = torch.stack([pool.projection @ maps[b, :, r, c] for r in range(3) for c in range(2)])
        cost = torch.stack([torch.stack([(ball(w) - ball(f)).norm() for f in local]) for w in pool.prototypes])
        published = paper_iteration(cost[None], 0.3, 5.0, steps=400)
        torch.testing.assert_close(out.weights[b], published.weights[0])
        torch.testing.assert_close(out.attributes[b], published.plan[0].sum(1) / 0.3)
        torch.testing.assert_close(out.vector[b], sum(p * f for p, f in zip(published.weights[0], local, strict=True)))
    assert out.grid == (3, 2)


def test_max_adds_the_projected_maximum() -> None:
    maps = features(2, 6, 3, 2)
    plain, combined = gsp()(maps), gsp(GMPGSP)(maps)
    maximum = maps.amax((2, 3)) @ gsp().projection.T
    torch.testing.assert_close(combined.vector, plain.vector + maximum)


def test_gem_takes_the_generalised_mean_of_weighted_features() -> None:
    maps = features(2, 6, 3, 2)
    pool = gsp(GeMGSP)
    out = pool(maps)
    for b in range(2):
        scaled = [6 * out.weights[b, j] * maps[b].flatten(1)[:, j] for j in range(6)]
        mean = (sum(s.clamp_min(1e-6) ** 3 for s in scaled) / 6) ** (1 / 3)
        torch.testing.assert_close(out.vector[b], pool.projection @ mean)


def test_background_role_keeps_what_the_foreground_role_drops() -> None:
    maps = features(2, 6, 3, 2)
    fore, back = gsp()(maps), gsp(role="background")(maps)
    torch.testing.assert_close(0.3 * fore.weights + 0.7 * back.weights, torch.full_like(fore.weights, 1 / 6))


@pytest.mark.parametrize("settings", [{"mass": 1.0}, {"sharpness": 0.0}])
def test_is_average_pooling_at_mass_one_and_sharpness_zero(settings: dict[str, float]) -> None:
    pool, maps = gsp(**settings), features(2, 6, 3, 2)
    torch.testing.assert_close(pool(maps).vector, maps.mean((2, 3)) @ pool.projection.T)


def test_no_projection_is_a_drop_in_for_average_pooling() -> None:
    out = gsp(dim=None)(features(2, 6, 3, 2))
    assert out.vector.shape == (2, 6)


def test_learned_mass_and_sharpness_start_where_asked_and_get_gradients() -> None:
    fixed, learned = gsp(mass=0.4, sharpness=3.0), gsp(mass=0.4, sharpness=3.0, learn_mass=True, learn_sharpness=True)
    maps = features(2, 6, 3, 2)
    torch.testing.assert_close(learned(maps).vector, fixed(maps).vector, rtol=1e-5, atol=1e-7)
    learned(maps).vector.square().sum().backward()
    assert learned.log_odds.grad != 0
    assert learned.log_sharpness.grad != 0
    with torch.no_grad():
        learned.log_odds += 100
        learned.log_sharpness -= 100
    assert 0 < float(learned.mass.detach()) < 1
    assert float(learned.sharpness.detach()) >= 0
    assert learned(maps).vector.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("odds", [-200.0, 200.0])
@pytest.mark.parametrize("role", ["foreground", "background"])
def test_learned_settings_stay_in_range(role: str, odds: float, dtype: torch.dtype) -> None:
    pool = gsp(role=role, learn_mass=True, learn_sharpness=True).to(dtype)
    with torch.no_grad():
        pool.log_odds.fill_(odds)
        pool.log_sharpness.fill_(odds)
    assert bool(pool(features(2, 6, 3, 2).to(dtype)).vector.isfinite().all())


def test_a_map_is_not_copied() -> None:
    """Neither projection nor cost copies what they multiply: no copy is as large as the map or its projection."""
    for dim, channels in ((None, 64), (16, 16)):
        pool = GSP(64, dim, prototypes=8, memory=0)
        maps = torch.randn(4, 64, 7, 7, requires_grad=True)
        with torch.profiler.profile(record_shapes=True) as profile:
            pool(maps)
        copied = [event.input_shapes[0] for event in profile.events() if event.name == "aten::copy_"]
        assert [4, 49, channels] not in copied
        assert [4, channels, 49] not in copied


class TestPrototypes:
    """Picked once, in place, in training mode only."""

    def batches(self) -> list[Tensor]:
        return [torch.randn(8, 6, 2, 2, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]

    def pool(self) -> GSP:
        torch.manual_seed(0)
        return GSP(in_features=6, dim=4, prototypes=3, memory=20)

    def test_a_bad_batch_is_refused_and_leaves_no_trace(self) -> None:
        pool, expected = self.pool(), self.pool()
        first, second, third, *_ = self.batches()
        for batch in (first, second, third):
            expected(batch)
        pool(first)
        with pytest.raises(InputError, match="NaN or infinite features in training"):
            pool(second * torch.nan)
        for batch in (second, third):
            pool(batch)
        assert pool.ready
        torch.testing.assert_close(pool.prototypes, expected.prototypes, rtol=0, atol=0)

    def test_average_pooling_until_ready_then_k_center_of_what_was_seen(self) -> None:
        pool, seen = self.pool(), []
        for step, batch in enumerate(self.batches()):
            out = pool(batch)
            average = batch.mean((2, 3)) @ pool.projection.T
            seen += list(average.detach())
            assert pool.ready == (step >= 2)
            assert torch.allclose(out.vector, average) != pool.ready
            assert bool(out.attributes.any()) == pool.ready
        rows = torch.stack([ball(vector) for vector in seen[:20]])
        torch.testing.assert_close(pool.prototypes.data, rows[greedy_k_center(rows, 3).indices])

    def test_an_optimizer_made_before_trains_them(self) -> None:
        pool = self.pool()
        optimizer = torch.optim.SGD(pool.parameters(), lr=0.1)
        for batch in self.batches()[:3]:
            pool(batch)
        before = pool.prototypes.detach().clone()
        pool(self.batches()[3]).vector.square().sum().backward()
        optimizer.step()
        assert not torch.equal(pool.prototypes, before)

    def test_evaluation_collects_nothing(self) -> None:
        pool = self.pool().eval()
        for batch in self.batches():
            pool(batch)
        assert int(pool.seen) == 0

    @pytest.mark.parametrize("saved_after", [0, 1, 3])
    def test_survives_save_and_load(self, saved_after: int) -> None:
        whole, first = self.pool(), self.pool()
        for batch in self.batches():
            whole(batch)
        for batch in self.batches()[:saved_after]:
            first(batch)
        resumed = GSP(in_features=6, dim=4, prototypes=3, memory=20)
        resumed.load_state_dict(copy.deepcopy(first.state_dict()))
        for batch in self.batches()[saved_after:]:
            resumed(batch)
        for name, value in whole.state_dict().items():
            assert torch.equal(value, resumed.state_dict()[name]), name

    def test_are_the_same_on_every_rank(self, tmp_path: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        script = tmp_path / "rank.py"
        script.write_text(
            "import sys, torch, torch.distributed as dist\n"
            "from sumpool import GSP\n"
            "rank, port, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]\n"
            "dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=rank, world_size=2)\n"
            "torch.manual_seed(0)\n"
            "pool = GSP(in_features=6, dim=4, prototypes=3, memory=20)\n"
            "for seed in range(5):\n"
            "    batch = torch.randn(8, 6, 2, 2, generator=torch.Generator().manual_seed(seed))\n"
            "    pool(batch[:5] if rank == 0 else batch[5:])\n"
            "torch.save(pool.prototypes.data, f'{out}/{rank}.pt')\n"
            "dist.destroy_process_group()\n"
        )
        ranks = [subprocess.Popen([sys.executable, script, str(r), str(port), str(tmp_path)]) for r in range(2)]
        assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]
        alone = self.pool()
        for batch in self.batches():
            alone(batch)
        for rank in range(2):
            torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt", weights_only=True), alone.prototypes.data)

    def test_a_compiled_layer_picks_the_same(self) -> None:
        eager, compiled = self.pool(), self.pool()
        fast = torch.compile(compiled, fullgraph=True, backend="aot_eager")
        for batch in self.batches():
            expected, got = eager(batch), fast(batch)
            torch.testing.assert_close(got.vector, expected.vector)
            torch.testing.assert_close(got.attributes, expected.attributes)
        assert compiled.ready


def test_inductor_result_and_gradient_equal_eager() -> None:
    pool = gsp(GMPGSP, learn_mass=True, learn_sharpness=True).float()
    maps = features(2, 6, 3, 2).float().requires_grad_()
    fast = torch.compile(pool, fullgraph=True)
    for run in (pool, fast):
        out = run(maps)
        (out.vector.square().sum() + out.attributes.square().sum()).backward()
        if run is pool:
            expected = [maps.grad, *(p.grad for p in pool.parameters())]
            maps.grad = None
            pool.zero_grad(set_to_none=True)
    for grad, eager in zip([maps.grad, *(p.grad for p in pool.parameters())], expected, strict=True):
        torch.testing.assert_close(grad, eager, rtol=1e-4, atol=1e-5)


def test_autocast_changes_only_the_projection() -> None:
    pool, maps = gsp().float(), features(2, 6, 3, 2).float()
    with torch.autocast("cpu", torch.bfloat16):
        out = pool(maps)
    assert out.weights.dtype == torch.float32
    torch.testing.assert_close(out.weights.sum(1), torch.ones(2))
    torch.testing.assert_close(out.vector.float(), pool(maps).vector, rtol=0.05, atol=0.05)


def test_lives_inside_a_network() -> None:
    network = nn.Sequential(nn.Conv2d(3, 6, 3), GSP(in_features=6, dim=4))
    assert "mass=0.3" in repr(network)
    assert network(torch.randn(2, 3, 8, 8)).vector.shape == (2, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mass": 0.0}, "mass must be in"),
        ({"mass": 1.5}, "mass must be in"),
        ({"mass": 1.0, "learn_mass": True}, "cannot be learned"),
        ({"mass": 1.0, "role": "background"}, "leaves no background"),
        ({"sharpness": -1.0}, "sharpness must be"),
        ({"sharpness": 0.0, "learn_sharpness": True}, "start from a positive"),
        ({"prototypes": 0}, "at least 1"),
        ({"role": "middle"}, "'foreground' or 'background'"),
        ({"memory": 2}, "memory must be 0 or at least"),
        ({"dim": 0}, "at least 1"),
    ],
)
def test_bad_settings_fail_when_written(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gsp(**settings)
