"""CCP in the plane: images in the place of proxies, moments between problems, and what the verdict is drawn from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sumpool.data import CentreCrop
from sumpool.studies.base import Call
from sumpool.studies.ccp_geometry import (
    AFTER,
    BEFORE,
    ONE,
    PROXIES,
    SAMPLES,
    between_problems,
    judged,
    measured,
    setting,
    share,
    summary,
)
from sumpool.studies.ccp_record import moments, record, run_recorded, spread
from sumpool.studies.sample_references import SampleReferences, use_samples
from sumpool.training.config import TrainConfig
from sumpool.training.loop import Training
from sumpool.training.start import start


def config(name: str = PROXIES, seed: int = 0) -> TrainConfig:
    return setting(Call("smoke", Path("unused")), name, seed)


def with_samples(folder: Path) -> Training:
    training = start(folder, config(SAMPLES))
    use_samples(training)
    training.embedder.train()
    return training


def test_samples_are_training_images_of_their_class_and_move_with_the_model(tmp_path: Path) -> None:
    training = with_samples(tmp_path)
    ccp = training.ccp
    assert ccp is not None
    ccp.begin(0)
    samples = ccp.proxies
    assert isinstance(samples, SampleReferences)
    train = training.data.train.transformed(CentreCrop(training.embedder.backbone.preprocessing))
    pictures = torch.stack([train[row][0] for row in range(len(train))])
    wanted = torch.arange(10).repeat_interleave(4)
    for image, label in zip(samples.images, wanted, strict=True):
        same = (pictures == image).flatten(1).all(1)
        assert bool((train.labels[same] == label).any())
    picked = training.embedder.embed(samples.images)
    torch.testing.assert_close(samples.vectors.flatten(0, 1), picked, rtol=0, atol=1e-5)
    before = samples.vectors.clone()
    batches = training.batches()
    for _ in range(3):
        training.train_on(next(batches))
    assert bool((samples.vectors != before).all())


def test_samples_pass_gradients_on_and_are_no_parameters(tmp_path: Path) -> None:
    training = with_samples(tmp_path)
    ccp = training.ccp
    assert ccp is not None
    ccp.begin(0)
    reference = ccp.proxies.reference(torch.float32)
    reference.embeddings.sum().backward()
    assert all(weight.grad is not None for weight in training.embedder.parameters())
    assert not any(weight.requires_grad for weight in ccp.proxies.parameters())


def test_a_moment_is_kept_whenever_a_problem_ends_and_training_stays_the_same(tmp_path: Path) -> None:
    plain = start(tmp_path / "plain", config())
    plain.fit()
    recorded = start(tmp_path / "recorded", config())
    record(recorded)
    recorded.fit()
    for name, weight in plain.embedder.state_dict().items():
        torch.testing.assert_close(recorded.embedder.state_dict()[name], weight, rtol=0, atol=0)
    found = moments(tmp_path / "recorded")
    assert recorded.ccp is not None
    assert len(found) == recorded.ccp.problem == 4
    assert found[1].vectors.shape == (597, 2)
    assert bool((found[1].ended != found[1].fresh).any())


def test_a_complete_run_is_taken_as_it_is(tmp_path: Path) -> None:
    first = run_recorded(config(), tmp_path)
    (tmp_path / "best" / "model.safetensors").unlink()
    torch.testing.assert_close(run_recorded(config(), tmp_path).vectors, first.vectors, rtol=0, atol=0)


def test_one_problem_never_alternates_and_begins_like_the_alternating_run(tmp_path: Path) -> None:
    runs = {name: start(tmp_path / name, config(name)) for name in (ONE, PROXIES)}
    for run in runs.values():
        run.fit()
    lines = [run.run.entries() for run in runs.values()]
    assert [line["problem"] for line in lines[0]] == [1] * 6
    assert [line["problem"] for line in lines[1]] == [1, 1, 2, 2, 3, 3]
    assert lines[0][1]["total"] == lines[1][1]["total"]


def test_the_share_is_one_for_proxies_as_far_apart_as_the_images() -> None:
    vectors = torch.tensor([[0.0, 0.0], [0.0, 2.0], [5.0, 0.0], [6.0, 0.0]])
    proxies = torch.tensor([[[0.0, 0.0], [2.0, 0.0]], [[5.0, 0.0], [5.25, 0.0]]])
    assert spread(proxies).tolist() == [2.0, 0.25]
    assert share(proxies, vectors, torch.tensor([0, 0, 1, 1])).tolist() == [1.0, 0.25]


def numbers(score: float, radius: float, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    noise = [rng.normal(0, 1e-3, (3, count)) for count in (40, 10)]
    labels = np.arange(40) % 10
    return {"map@r": score + noise[0], "radius": radius + noise[1], "inter-class": 1 + noise[1], "classes": labels}


@pytest.mark.parametrize(
    ("score", "radius", "verdict"),
    [(0.9, 0.1, "reproduced"), (0.7, 0.1, "partly reproduced"), (0.9, 0.3, "partly reproduced")],
)
def test_the_verdict_follows_the_intervals(score: float, radius: float, verdict: str) -> None:
    arms = {ONE: (0.8, 0.2), PROXIES: (score, radius), SAMPLES: (score - 0.01, radius)}
    arms |= {BEFORE: (0.75, 0.2), AFTER: (0.85, radius)}
    found = summary({name: numbers(*pair, seed) for seed, (name, pair) in enumerate(arms.items())})
    assert abs(found["difference"]["map@r"]["mean"] - (score - 0.8)) < 1e-3
    assert abs(found["after − before"]["radius"]["mean"] - (radius - 0.2)) < 1e-3
    begin, end = {"mean": 1.0, "ci95": [0.9, 1.1]}, {"mean": 0.1, "ci95": [0.0, 0.2]}
    assert judged(found | {"proxies": {"first problem": {"begin": begin, "end": end}}})[0] == verdict


def test_before_and_after_are_the_ends_of_the_first_and_the_last_problem(tmp_path: Path) -> None:
    run = run_recorded(config(), tmp_path)
    found = between_problems([tmp_path], [run])
    kept = moments(tmp_path)
    torch.testing.assert_close(found[BEFORE][0].vectors, kept[1].vectors, rtol=0, atol=0)
    torch.testing.assert_close(found[AFTER][0].vectors, kept[3].vectors, rtol=0, atol=0)


def test_measured_geometry_is_of_the_test_images(tmp_path: Path) -> None:
    run = run_recorded(config(), tmp_path)
    found = measured({PROXIES: [run, run]})[PROXIES]
    assert found["radius"].shape == (2, 10)
    assert found["map@r"].shape == (2, 597)
    assert run.metrics(("map@r",), "euclidean")["map@r"] == pytest.approx(found["map@r"][0].mean())
