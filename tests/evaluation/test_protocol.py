"""Protocols: which trainings they are, what may be continued, and the scores they lead to. Nothing is trained here."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from sumpool.errors import InputError
from sumpool.evaluation import results as results_module
from sumpool.evaluation import scores as scores_module
from sumpool.evaluation.protocol import Protocol, create_protocol, load_protocol, open_protocol
from sumpool.evaluation.results import MethodResult, load_results
from sumpool.evaluation.scores import compute_scores
from sumpool.evaluation.statistics import compare, estimate, holm
from sumpool.evaluation.summary import summarise, write_summary
from sumpool.evaluation.trial import Embedded, save_embedded
from sumpool.retrieval import retrieval_metrics

CLASSES, PER_CLASS, DIM = 6, 5, 3


def protocol(kind: str = "fair", *methods: str, repeats: int = 2, **given: Any) -> Protocol:
    return create_protocol(
        kind, methods or ("C2", "C2+GSP"), {"dataset": "cub", **given}, repeats, "sumpool protocol …"
    )


def embedded(seed: int, quality: float = 1.0) -> Embedded:
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    centres = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(0))
    vectors = quality * centres[labels] + torch.randn(len(labels), DIM, generator=rng)
    everything = torch.ones(len(labels), dtype=torch.bool)
    return Embedded(vectors, labels, everything, everything.clone())


def pretend(folder: Path, wanted: Protocol) -> Path:
    """The folder of a protocol with invented embeddings in place of trainings; later methods are better."""
    wanted.save(folder)
    for number, (_, run) in enumerate(wanted.trials(folder)):
        run.mkdir(parents=True)
        better = list(wanted.methods).index(run.parent.name)
        save_embedded(embedded(number, 1.0 + better), run, wanted.scored_on)
    return folder


def begin(folder: Path, wanted: Protocol, methods: int | None = None) -> Path:
    """The folder of a protocol in which the first training of some methods, or of all, has begun."""
    open_protocol(folder, wanted)
    for method in list(wanted.methods)[:methods]:
        wanted.runs(folder, method)[0][0].mkdir(parents=True)
    return folder


@pytest.fixture
def fair(tmp_path: Path) -> Path:
    return pretend(tmp_path / "fair", protocol())


def test_every_fold_is_held_out_by_every_repeat(tmp_path: Path) -> None:
    trials = list(protocol("fair", "C2").trials(tmp_path))
    assert [run.relative_to(tmp_path).as_posix() for _, run in trials] == [
        *("C2/f0r0", "C2/f1r0", "C2/f2r0", "C2/f3r0"),
        *("C2/f0r1", "C2/f1r1", "C2/f2r1", "C2/f3r1"),
    ]
    assert [(config.validate_on, config.fold) for config, _ in trials] == [("fold", fold) for fold in [0, 1, 2, 3] * 2]
    assert len({config.seed for config, _ in trials}) == len(trials)


def test_more_repeats_keep_the_seeds_of_the_first(tmp_path: Path) -> None:
    few = {run: config for config, run in protocol().trials(tmp_path)}
    many = {run: config for config, run in protocol(repeats=3).trials(tmp_path)}
    assert few.items() < many.items()


@pytest.mark.parametrize(
    ("kind", "method", "places"),
    [("tuning", "C2", ("fold", 5, 4)), ("tuning", "C1+CCP", ("fold", 3, 2)), ("conventional", "C2", ("test", 4, 3))],
)
def test_one_model_per_repeat(tmp_path: Path, kind: str, method: str, places: tuple[str, int, int]) -> None:
    trials = list(protocol(kind, method, repeats=3).trials(tmp_path))
    assert [run.name for _, run in trials] == ["f0r0", "f0r1", "f0r2"]
    assert {(config.validate_on, config.folds, config.fold) for config, _ in trials} == {places}


def test_the_folder_says_what_was_asked_for(tmp_path: Path) -> None:
    asked = protocol("conventional", "C2", "C1+XBM+GSP")
    asked.save(tmp_path)
    assert load_protocol(tmp_path) == asked
    content = json.loads((tmp_path / "protocol.json").read_text())
    assert content["selected on test"] is True
    assert [entry["slug"] for entry in content["methods"]] == ["C2", "C1+XBM+GSP"]


def test_methods_and_repeats_can_be_added(tmp_path: Path) -> None:
    begin(tmp_path, protocol())
    both = open_protocol(tmp_path, protocol("fair", "MS", repeats=3, device="cpu"))
    assert list(both.methods) == ["C2", "C2+GSP", "MS"]
    assert both.repeats == 3
    assert load_protocol(tmp_path) == both


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (protocol(lr=0.5), "lr of C2(\\+GSP)? 1e-05, not 0.5"),
        (protocol(repeats=1), "repeats 2, not 1"),
        (protocol("tuning"), "kind fair, not tuning"),
        (protocol(dataset="cars"), "dataset cub, not cars"),
        (protocol("fair", "MS", folds=2), "one of 4 parts of the classes and MS one of 2"),
    ],
)
def test_what_was_begun_cannot_be_changed(tmp_path: Path, changed: Protocol, reason: str) -> None:
    begin(tmp_path, protocol())
    with pytest.raises(InputError, match=reason):
        open_protocol(tmp_path, changed)
    assert load_protocol(tmp_path) == protocol()


def test_what_has_not_begun_can_be_corrected(tmp_path: Path) -> None:
    open_protocol(tmp_path, protocol(dataset="cup", repeats=3))
    assert open_protocol(tmp_path, protocol()) == load_protocol(tmp_path) == protocol()
    begin(tmp_path, protocol(), methods=1)
    corrected = protocol(pooling_settings={"mass": 0.5})
    assert open_protocol(tmp_path, corrected) == load_protocol(tmp_path) == corrected
    other = open_protocol(tmp_path, protocol("fair", "MS"))
    assert list(other.methods) == ["C2", "MS"]


@pytest.mark.parametrize("content", ["", '{"protocol": "fair"', "{}", "[1]", '{"methods": [1]}'])
def test_a_damaged_file_is_said_in_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "protocol.json").write_text(content)
    for read in (load_results, lambda folder: open_protocol(folder, protocol())):
        with pytest.raises(InputError, match=r"protocol\.json is damaged"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("kind", "methods", "given", "reason"),
    [
        ("fiar", ["C2"], {}, "unknown protocol 'fiar': did you mean 'fair'"),
        ("fair", [], {}, "needs a dataset, methods"),
        ("fair", ["C2", "C2+GAP"], {}, "C2 and C2\\+GAP are the same method"),
        ("fair", ["C2"], {"loss": "triplet"}, "loss follows from the protocol and the method"),
        ("fair", ["C2"], {"validate_on": "test"}, "validate_on follows from"),
        ("fair", ["C2"], {"learning_rate": 1.0}, "unknown setting 'learning_rate'"),
        ("fair", ["C2"], {"pooling_settings": {"mass": 0.2}}, "pooling_settings.mass is given, but no method"),
        ("tuning", ["C2", "C1+CCP"], {}, "C2 holds out one of 5 .* C1\\+CCP one of 3"),
    ],
)
def test_nonsense_is_refused_before_anything_is_trained(
    kind: str, methods: list[str], given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        create_protocol(kind, methods, {"dataset": "cub", **given})


def test_single_scores_are_means_over_folds_and_ensembles_concatenate_unit_vectors() -> None:
    runs = [[embedded(10 * fold + repeat) for repeat in range(2)] for fold in range(3)]
    scores = compute_scores(runs)
    assert scores.ensemble["map@r"].shape == (2, 2, 2, CLASSES * PER_CLASS)
    alone = retrieval_metrics(runs[2][1].vectors, runs[2][1].labels).per_query["map@r"]
    np.testing.assert_array_equal(scores.single["map@r"][2, 1], alone)
    chosen = [runs[0][1], runs[1][0], runs[2][1]]
    vectors = torch.cat([run.vectors / run.vectors.norm(dim=1, keepdim=True) for run in chosen], 1)
    expected = retrieval_metrics(vectors, chosen[0].labels).per_query["map@r"]
    np.testing.assert_array_equal(scores.ensemble["map@r"][1, 0, 1], expected)


def test_the_length_of_a_model_s_vectors_does_not_weigh_it() -> None:
    runs = [[embedded(0)], [embedded(1)]]
    scaled = [[run._replace(vectors=(1 + fold) * 8 * run.vectors) for run in runs[fold]] for fold in range(2)]
    np.testing.assert_array_equal(compute_scores(runs).ensemble["p@r"], compute_scores(scaled).ensemble["p@r"])


def test_lengths_count_in_scores_and_ensembles_where_distances_rank() -> None:
    runs = [[embedded(0)], [embedded(1)]]
    lengths = torch.linspace(0.1, 1, CLASSES * PER_CLASS)[:, None]
    longer = [[run._replace(vectors=lengths * run.vectors) for run in fold] for fold in runs]
    scores = compute_scores(longer, "euclidean")
    labels, vectors = runs[0][0].labels, [fold[0].vectors for fold in longer]
    expected = {"single": vectors[1], "ensemble": torch.cat(vectors, 1)}
    for kind, found in {"single": scores.single["map@r"][1, 0], "ensemble": scores.ensemble["map@r"][0, 0]}.items():
        wanted = retrieval_metrics(expected[kind], labels, distance="euclidean").per_query["map@r"]
        np.testing.assert_array_equal(found, wanted)
    assert not np.array_equal(scores.ensemble["map@r"], compute_scores(longer).ensemble["map@r"])


def test_other_images_are_refused() -> None:
    other = embedded(1)._replace(labels=torch.zeros(CLASSES * PER_CLASS))
    with pytest.raises(InputError, match="different images"):
        compute_scores([[embedded(0), other]])


def test_results_of_a_fair_protocol(fair: Path) -> None:
    first, second = load_results(fair)
    assert (first.method, first.protocol, first.dataset, first.dim, first.ensemble_dim) == ("C2", "fair", "cub", 3, 12)
    assert (first.selected_on_test, first.scored_on) == (False, "test")
    assert first.ensemble is not None
    assert second.single["p@1"].shape == first.ensemble["p@1"].shape == (2, 2, 2, 2, CLASSES * PER_CLASS)
    assert [run.name for run in first.runs] == ["f0r0", "f0r1", "f1r0", "f1r1", "f2r0", "f2r1", "f3r0", "f3r1"]
    p_at_1 = [entry["value"] for entry in first.raw if entry["metric"] == "p@1"]
    assert len(p_at_1) == 8
    assert np.mean(p_at_1) == pytest.approx(first.single["p@1"].mean())
    one = next(e for e in first.raw if (e["fold"], e["repeat"], e["metric"]) == (2, 1, "map@r"))
    run = next(path for path in first.runs if path.name == "f2r1")
    assert one["value"] == pytest.approx(scores_module.load_embedded(run).metrics()["map@r"])


def test_scores_are_computed_once_and_again_when_a_training_changes(
    fair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_results(fair)
    with monkeypatch.context() as patch:
        patch.setattr(scores_module, "compute_scores", lambda *_: pytest.fail("computed again"))
        again = load_results(fair)
    for name in ("p@1", "p@r", "map@r"):
        np.testing.assert_array_equal(again[1].single[name], before[1].single[name])
        assert again[1].ensemble is not None
        assert before[1].ensemble is not None
        np.testing.assert_array_equal(again[1].ensemble[name], before[1].ensemble[name])
    assert (again[1].dim, again[1].labels.tolist()) == (before[1].dim, before[1].labels.tolist())
    save_embedded(embedded(99), before[1].runs[3])
    changed = load_results(fair)
    assert changed[1].single["map@r"].mean() != before[1].single["map@r"].mean()
    assert changed[0].single["map@r"].mean() == before[0].single["map@r"].mean()


def test_an_incomplete_protocol_says_what_is_missing_and_how_to_continue(fair: Path) -> None:
    (fair / "C2+GSP" / "f1r0" / "test.safetensors").unlink()
    with pytest.raises(InputError, match=r"1 of 16 trainings .* \(C2\+GSP/f1r0\): continue with sumpool protocol …"):
        load_results(fair)
    assert [run.name for _, run in load_protocol(fair).missing(fair)] == ["f1r0"]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a protocol"):
        load_results(tmp_path)


def test_the_summary_has_means_intervals_and_adjusted_comparisons(tmp_path: Path) -> None:
    folder = pretend(tmp_path / "out", protocol("fair", "C2", "MS", "Triplet"))
    results = load_results(folder)
    summary = write_summary(folder, results)
    assert summary == json.loads((folder / "results.json").read_text())
    assert (summary["folds"], summary["repeats"], summary["collections"]) == (4, 2, 16)
    expected = estimate(results[1].ensemble["map@r"], results[1].labels)  # type: ignore[index]
    found = summary["methods"][1]["ensemble"]["map@r"]
    assert found == {"mean": expected.mean, "ci95": [expected.low, expected.high], "std": expected.std}
    pairs = [compare(other.single["p@1"], results[0].single["p@1"], results[0].labels) for other in results[1:]]
    shown = [method["comparison"]["single"]["p@1"] for method in summary["methods"][1:]]
    assert [entry["p holm"] for entry in shown] == pytest.approx(holm([pair.p for pair in pairs]).tolist())
    assert shown[1]["difference"] > shown[0]["difference"] > 0
    assert "comparison" not in summary["methods"][0]


def test_tuning_looks_at_the_validation_classes_only(tmp_path: Path) -> None:
    folder = pretend(tmp_path / "out", protocol("tuning"))
    assert not list(folder.rglob("test.safetensors"))
    (first, _) = load_results(folder)
    assert (first.scored_on, first.ensemble, first.single["p@1"].shape) == ("validation", None, (2, 30))
    assert summarise([first])["methods"][0]["ensemble"] is None


def test_the_conventional_protocol_says_so_everywhere_and_gives_the_best(tmp_path: Path) -> None:
    folder = pretend(tmp_path / "out", protocol("conventional", repeats=3))
    results = load_results(folder)
    summary = write_summary(folder, results)
    assert summary["selected on test"] is True
    assert "selected on the test set" in summary["warning"]
    rows = list(csv.DictReader((folder / "scores.csv").read_text().splitlines()))
    assert len(rows) == 2 * 3 * 3
    assert {row["selected_on"] for row in rows} == {"test"}
    of_first = {
        int(row["repeat"]): float(row["value"]) for row in rows if (row["method"], row["metric"]) == ("C2", "p@1")
    }
    best = summary["methods"][0]["best"]
    assert best["p@1"] == of_first[best["repeat"]] == max(of_first.values())
    assert best["p@1"] >= summary["methods"][0]["single"]["p@1"]["mean"]


def test_one_training_is_a_result_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"dataset": "toy", "validate_on": "test", "dim": 3, "betas": [0.9, 0.999]}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(InputError, match="no model yet: continue it with sumpool train --resume"):
        load_results(tmp_path)
    (tmp_path / "best").mkdir()
    monkeypatch.setattr(results_module, "embed_part", lambda config, folder, processes: embedded(0))
    (found,) = load_results(tmp_path)
    assert (found.method, found.protocol, found.dataset) == (tmp_path.name, "train", "toy")
    assert (found.selected_on_test, found.dim, found.ensemble, found.single["p@1"].shape) == (True, 3, None, (1, 30))
    assert not (tmp_path / "test.safetensors").exists()  # it would say that the training is complete


def test_a_perfect_difference_is_written(tmp_path: Path) -> None:
    labels = np.array([0, 0, 1, 1])
    low = MethodResult("a", "fair", "x", 2, {"p@1": np.zeros((2, 4))}, None, labels, [], [], False)
    high = replace(low, method="b", single={"p@1": np.ones((2, 4))})
    assert write_summary(tmp_path, [low, high])["methods"][1]["comparison"]["single"]["p@1"]["effect"] is None


def test_images_are_told_apart_by_the_settings_that_decide_them(tmp_path: Path) -> None:
    def images(kind: str, **given: Any) -> dict[str, Any]:
        wanted = protocol(kind, "C2", **{"dataset": "glyphs", **given})
        return load_results(pretend(tmp_path / str(len(list(tmp_path.iterdir()))), wanted))[0].images

    assert images("fair", data_settings={"seed": 0, "per_class": 20}, lr=0.5) == images("fair") == {}
    assert images("fair", folds=2, data_settings={"seed": 1}) == {"seed": 1}
    assert images("tuning", folds=7, data_settings={"seed": 1}) == {"seed": 1, "folds": 7}
    assert images("fair", dataset="cub", data_settings={"verify": False}) == {}
    assert images("fair", dataset="photos", data_settings={"test_share": 0.25}) == {"test_share": 0.25}
