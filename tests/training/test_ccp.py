"""CCP: problems with new proxies, the pull between them, and their place in the loop."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sumpool.errors import InputError
from sumpool.losses import LOSSES, PairLoss
from sumpool.training.ccp import CCP, select
from sumpool.training.checkpoint import load_state
from sumpool.training.config import TrainConfig, to_yaml
from sumpool.training.loop import Training
from sumpool.training.processes import Processes
from sumpool.training.proxy_pool import Pool, by_class
from sumpool.training.run import Run

ALONE = Processes(0, 1, torch.device("cpu"))
NEVER = {"min_delta": 10.0, "patience": 2}  # no score improves so much: a problem lasts its patience + 1 validations


def training(folder: Path, **changes: Any) -> Training:
    settings: dict[str, Any] = {
        "loss": "ccp/contrastive",
        "data_settings": {"per_class": 8},
        "backbone_settings": {"channels": 8},
        "pooling": "gap",
        "dim": 4,
        "classes_per_batch": 2,
        "images_per_class": 2,
        "augment": "shift",
        "lr": 1e-2,
        "steps": 8,
        "validate_every": 1,
        "loss_settings": {"ccp": {"per_class": 3}},
        "ccp_settings": {"pool": 5, **NEVER},
        **changes,
    }
    config, run = TrainConfig("toy", backbone="tiny", **settings), Run(folder)
    if not (folder / "config.yaml").exists():
        run.create(to_yaml(config))
    return Training(config, run, ALONE)


def ccp_of(run: Training) -> CCP:
    assert run.ccp is not None
    return run.ccp


def proxies_of(run: Training) -> Tensor:
    return ccp_of(run).proxies.vectors.detach().clone()


def started(folder: Path, **changes: Any) -> Training:
    run = training(folder, **changes)
    ccp_of(run).begin(0)
    return run


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights(run: Training) -> dict[str, Tensor]:
    return {**run.embedder.state_dict(), **run.objective.state_dict()}


def test_problems_alternate_and_are_logged(tmp_path: Path) -> None:
    run = training(tmp_path)
    run.fit()
    logged = lines(tmp_path)
    assert [line["problem"] for line in logged] == [1, 1, 1, 2, 2, 2, 3, 3]
    assert [line["problem steps"] for line in logged] == [1, 2, 3, 1, 2, 3, 1, 2]
    radii = {(line["covering radius before"], line["covering radius after"]) for line in logged}
    assert len(radii) == 3
    assert all(after < before for before, after in radii)


def test_a_score_that_improves_keeps_the_problem(tmp_path: Path) -> None:
    ccp = ccp_of(started(tmp_path, ccp_settings={"pool": 5, "patience": 2}))
    model = nn.Module()
    for step, (score, problem) in enumerate([(0.1, 1), (0.1, 1), (0.2, 1), (0.15, 1), (0.2, 2), (0.1, 2)], start=1):
        ccp.validated(score, model, step)
        assert ccp.problem == problem
    assert ccp.start == 5
    assert ccp.best_score == 0.1  # of the second problem: the first one's 0.2 does not count there


def test_proxies_are_embeddings_of_images_and_differ_between_problems(tmp_path: Path) -> None:
    run = training(tmp_path)
    seen = [proxies_of(run)]
    for problem in range(1, 4):
        ccp_of(run).begin(0)
        pool = ccp_of(run).draw(5, problem)
        seen.append(proxies_of(run))
        gap = torch.cdist(seen[-1], pool.points).amin(2)
        assert float(gap.max()) < 1e-6
    for old, new in pairwise(seen):
        assert bool((old != new).any(2).all())


def test_the_cover_is_the_best_proxies_of_the_problem(tmp_path: Path) -> None:
    run = started(tmp_path, ccp_settings={"pool": 5, "patience": 1})
    ccp, batches = ccp_of(run), run.batches()
    run.train_on(next(batches))
    best_proxies, best = proxies_of(run), {name: w.detach().clone() for name, w in ccp.trained.items()}
    ccp.validated(0.5, run.embedder, 1)
    run.train_on(next(batches))
    running = {name: w.detach().clone() for name, w in ccp.trained.items()}
    ccp.validated(0.4, run.embedder, 2)
    assert ccp.problem == 2
    torch.testing.assert_close(ccp.cover, best_proxies, rtol=0, atol=0)
    torch.testing.assert_close(ccp.previous, best, rtol=0, atol=0)
    torch.testing.assert_close(dict(ccp.trained), running, rtol=0, atol=0)  # not set back to the best
    cover = nn.functional.normalize(best_proxies, dim=2)
    expected = select(ccp.draw(5, 2), 3, cover)
    torch.testing.assert_close(proxies_of(run), expected.points, rtol=0, atol=0)


def test_the_covering_radius_shrinks() -> None:
    points = torch.tensor([[[0.0], [1.0], [4.0], [9.0]], [[0.0], [0.0], [2.0], [100.0]]])
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    pool, cover = Pool(points, mask), torch.tensor([[[0.0]], [[-1.0]]])
    found = [select(pool, count, cover) for count in (1, 2, 3)]
    assert [selection.before for selection in found] == [6.0] * 3  # (9 + 3) / 2
    assert [selection.after for selection in found] == [2.5, 0.5, 0.0]  # (4 + 1) / 2, (1 + 0) / 2
    assert found[1].points.flatten().tolist()[:2] == [9.0, 4.0]


def test_the_gradient_gets_the_pull_before_clipping(tmp_path: Path) -> None:
    run = started(tmp_path, ccp_settings={"pool": 5, "pull": 0.25}, clip_norm=0.0)
    ccp, batch = ccp_of(run), next(run.batches())
    state = {name: value.clone() for name, value in run.embedder.state_dict().items()}

    def gradients() -> tuple[dict[str, Tensor], Tensor]:
        run.embedder.load_state_dict(state)
        run.train_on(batch)
        grads = {name: w.grad.clone() for name, w in ccp.trained.items() if w.grad is not None}
        assert ccp.proxies.vectors.grad is not None
        return grads, ccp.proxies.vectors.grad.clone()

    run.optimizer = torch.optim.SGD(run.optimizer.param_groups, lr=0.0)  # proxies stay the same between the two
    run.stepper.optimizer, run.lr = run.optimizer, 0.0
    first, first_proxies = gradients()
    ccp.previous = {name: weight.detach() - 3.0 for name, weight in ccp.trained.items()}
    pulled, pulled_proxies = gradients()
    assert len(first) == len(ccp.trained) > 3
    for name in first:  # λ(θ − θ_prev) = 0.25 · 3: downhill leads from θ back to θ_prev
        torch.testing.assert_close(pulled[name], first[name] + 0.75, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pulled_proxies, first_proxies)


def test_the_pull_keeps_the_weights_near_the_previous_solution(tmp_path: Path) -> None:
    def distance(pull: float) -> float:
        run = started(tmp_path / str(pull), ccp_settings={"pool": 5, "pull": pull}, lr=1e-3)
        ccp, batches = ccp_of(run), run.batches()
        ccp.previous = {name: weight.detach().clone() for name, weight in ccp.trained.items()}
        for _ in range(12):
            run.train_on(next(batches))
        return sum(float((w.detach() - ccp.previous[name]).norm()) for name, w in ccp.trained.items())

    free, pulled, pulled_hard = (distance(pull) for pull in (0.0, 1.0, 10.0))
    assert pulled_hard < pulled < free


def test_one_means_random_images(tmp_path: Path) -> None:
    run = training(tmp_path, ccp_settings={"pool": 1, **NEVER}, steps=4)
    ccp = ccp_of(run)
    ccp.begin(0)
    torch.testing.assert_close(proxies_of(run), ccp.draw(3, 1).points, rtol=0, atol=0)
    run.fit()
    logged = lines(tmp_path)
    assert [line["problem"] for line in logged] == [1, 1, 1, 2]
    assert "covering radius after" not in logged[-1]


def test_only_the_moments_of_the_proxies_start_anew(tmp_path: Path) -> None:
    run = started(tmp_path)
    run.train_on(next(run.batches()))
    before = set(run.optimizer.state)
    ccp_of(run).begin(1)
    assert before - set(run.optimizer.state) == {ccp_of(run).proxies.vectors}


PAIR_LOSSES = [name for name, loss in LOSSES.items() if issubclass(loss, PairLoss)]


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_composes_with_gsp_zero_shot_memory_and_every_pair_loss(loss: str, tmp_path: Path) -> None:
    own = {"ccp": {"per_class": 3}, "xbm": {"batches": 2, "start": 1}}
    gsp = {"prototypes": 3, "memory": 4}
    chain = f"zsr/ccp/xbm/{loss}"
    changes = {"ccp_settings": {"pool": 4, "min_delta": 10.0, "patience": 1}, "steps": 4}
    run = training(tmp_path, loss=chain, loss_settings=own, pooling="gsp", pooling_settings=gsp, **changes)
    run.fit()
    assert ccp_of(run).problem == 3
    assert ccp_of(run).previous.keys() == ccp_of(run).trained.keys()
    assert all(bool(value.isfinite().all()) for value in weights(run).values())


@pytest.mark.parametrize("stop", [2, 3, 5])  # inside a problem, right after one, with a pull
@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_resuming_inside_a_problem_is_exact(stop: int, ema: float, tmp_path: Path) -> None:
    whole = training(tmp_path / "whole", ema=ema)
    whole.fit()
    cut = training(tmp_path / "cut", ema=ema, steps=stop)
    cut.fit()
    again = training(tmp_path / "cut", ema=ema)
    again.resume()
    again.fit()
    assert ccp_of(again).problem == 3
    mine, theirs = (load_state(tmp_path / name / "last.safetensors") for name in ("cut", "whole"))
    assert mine["optimizer"].pop("param_groups") == theirs["optimizer"].pop("param_groups")
    for part in ("embedder", "objective", "ccp", "optimizer", "average", "best"):
        torch.testing.assert_close(mine[part], theirs[part], rtol=0, atol=0)
    assert [line["problem steps"] for line in lines(tmp_path / "cut")] == [1, 2, 3, 1, 2, 3, 1, 2]


def test_unreadable_images_leave_gaps() -> None:
    pool = by_class(torch.tensor([[5.0], [6.0], [7.0]]), torch.tensor([1, 0, 1]), classes=2, per_class=2)
    assert pool.filled().tolist() == [[[6.0], [6.0]], [[5.0], [7.0]]]
    with pytest.raises(InputError, match="class 1 could be read"):
        by_class(torch.zeros(2, 1), torch.tensor([0, 2]), classes=3, per_class=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pol": 5}, "did you mean 'pool'"),
        ({"pool": 2}, "at least the 3 images"),
        ({"patience": 0}, "patience ≥ 1"),
        ({"pull": -1.0}, "pull ≥ 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        training(tmp_path, ccp_settings=settings)


def test_presets_set_the_pool(tmp_path: Path) -> None:
    pools = {}
    for preset in ("cub", "sop"):
        run = training(tmp_path, preset=preset, loss_settings={}, ccp_settings={})
        pools[preset] = (ccp_of(run).pool, ccp_of(run).per_class)
    assert pools == {"cub": (12, 8), "sop": (7, 4)}
    run = training(tmp_path, preset="cub", loss_settings={}, ccp_settings={"pool": 20})
    assert ccp_of(run).pool == 20


def test_without_ccp_there_are_no_problems(tmp_path: Path) -> None:
    run = training(tmp_path, loss="contrastive", loss_settings={}, ccp_settings={}, steps=1)
    run.fit()
    assert run.ccp is None
    assert "problem" not in lines(tmp_path)[0]
