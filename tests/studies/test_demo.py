"""The demo, tiny: the same code as `sumpool demo`."""

import json
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

from sumpool.cli import main
from sumpool.data import load_dataset
from sumpool.errors import InputError
from sumpool.explain import Explanation
from sumpool.retrieval import Index
from sumpool.studies.demo import FULL, TINY, Demo, demo, methods, pretraining
from sumpool.studies.demo_prototypes import best_patches, patch
from sumpool.studies.demo_report import weight_inside
from sumpool.training.config import TrainConfig


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def found(out: Path) -> Demo:
    return demo(out, seeds=2, jobs=1, size=TINY, say=lambda line: None)


def test_results_have_both_methods_and_their_difference(out: Path, found: Demo) -> None:
    results = json.loads((out / "results.json").read_text())
    for name in ("GAP", "GSP", "difference"):
        for metric in ("map@r", "p@1", "p@r"):
            low, high = results[name][metric]["ci95"]
            assert low <= results[name][metric]["mean"] <= high
    means = {name: results[name]["map@r"]["mean"] for name in ("GAP", "GSP", "difference")}
    assert means["difference"] == pytest.approx(means["GSP"] - means["GAP"])


def test_the_report_shows_both_methods_and_loads_nothing(found: Demo) -> None:
    page = found.report.read_text()
    for words in ("GSP − GAP", "Where GSP looks", "What is found", "prototype", "MAP@R on the validation classes"):
        assert words in page
    assert page.count("data:image/") > 50
    assert not re.search(r'(src|href)="(?!data:)|url\(', page)


def test_the_search_finds_images_of_the_index_for_images_outside_it(out: Path, found: Demo) -> None:
    index = Index.load(found.search.index)
    assert len(found.search.answers) == 3
    for answer in found.search.answers:
        assert answer.query.relative_to(out / "queries").as_posix() not in {record["path"] for record in index.records}
        assert len(answer.found) == 5
        assert answer.found == sorted(answer.found, key=lambda pair: -pair[1])
    with Image.open(found.search.sheet) as sheet:
        assert sheet.width > 6 * 160


def test_the_search_can_be_repeated_from_the_shell(found: Demo, capsys: pytest.CaptureFixture[str]) -> None:
    answer = found.search.answers[0]
    assert main(["search", str(found.search.index), str(answer.query), "-k", "1"]) == 0
    assert f"{answer.found[0][1]:.4f}" in capsys.readouterr().out


def test_again_it_trains_only_what_is_missing(out: Path, found: Demo) -> None:
    done = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    assert len(done) > 10
    again = demo(out, seeds=2, jobs=1, size=TINY, say=lambda line: None)
    assert again.results == found.results
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == done


def test_methods_differ_in_the_pooling_and_its_loss_only() -> None:
    gap, gsp = methods(FULL, Path("weights.safetensors"), seed=1).values()
    different = {name for name, value in vars(gap).items() if value != getattr(gsp, name)}
    assert different == {"pooling", "pooling_settings", "loss"}
    assert (gap.pooling, gsp.pooling) == ("gap", "gsp")


def test_pretraining_sees_no_test_class() -> None:
    def classes(config: TrainConfig, split: str) -> set[str]:
        return set(load_dataset(config.dataset, **config.data_settings | {"per_class": 1}).split(split).classes)

    single, collage = pretraining(FULL), methods(FULL, Path("weights.safetensors"), seed=0)["GSP"]
    assert classes(collage, "train") < classes(single, "train")
    assert not classes(single, "train") & (classes(collage, "test") | classes(collage, "val"))


def test_no_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seeds must be at least 1, got 0"):
        demo(tmp_path, seeds=0)


def explanation(weights: torch.Tensor, prototypes: torch.Tensor | None = None) -> Explanation:
    return Explanation(Image.new("L", (56, 56)), weights, weights, prototypes, None)


def test_weight_inside_shares_out_places_on_the_edge() -> None:
    assert weight_inside(explanation(torch.full((7, 7), 1 / 49)), (28, 0, 56, 28)) == pytest.approx(0.25)
    middle = torch.zeros(7, 7)
    middle[0, 3] = 1
    assert weight_inside(explanation(middle), (28, 0, 56, 28)) == pytest.approx(0.5)
    assert weight_inside(explanation(middle), (0, 28, 28, 56)) == 0


def test_patches_come_from_where_a_prototype_takes_most() -> None:
    maps = torch.zeros(2, 3, 7, 7)
    maps[0, 2, 1, 5], maps[1, 2, 6, 0], maps[1, 0, 3, 3] = 0.9, 0.6, 0.1
    seen = [explanation(torch.zeros(7, 7), one) for one in maps]
    for one, place in zip(seen, [(44, 12), (4, 52)], strict=True):
        one.image.putpixel(place, 255)
    strongest, second = best_patches(seen, prototypes=2, patches=2, side=8)
    assert (strongest.number, second.number) == (2, 0)
    assert strongest.share == pytest.approx(0.75)
    assert [cut.getbbox() is not None for cut in strongest.patches] == [True, True]
    assert patch(Image.new("L", (56, 56)), 0, (7, 7), 28).size == (28, 28)
