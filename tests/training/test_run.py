"""A run folder explains itself."""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from sumpool import __version__
from sumpool.cli import main
from sumpool.embedder import Embedder
from sumpool.errors import InputError
from sumpool.pooling import POOLINGS
from sumpool.training.curves import curve
from sumpool.training.run import Run
from sumpool.training.setup import require_attributes
from sumpool.training.summary import summary_page

WORDS = [
    *("train", "toy", "--backbone", "tiny", "--dim", "4", "--loss", "contrastive", "--lr", "0.01", "--device", "cpu"),
    *("--classes-per-batch", "2", "--images-per-class", "2", "--steps", "6", "--validate-every", "2"),
]
ENTRIES = [
    {"step": 10, "total": 0.5, "map@r": 0.25, "p@1": 0.5, "best": 0.25},
    {"step": 20, "total": 0.4, "map@r": 0.75, "p@1": 0.625, "best": 0.75},
    {"step": 30, "total": 0.3, "map@r": 0.50, "p@1": 0.875, "best": 0.75},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    assert main([*WORDS, "--out", str(folder)]) == 0
    return folder


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_everything_is_there_and_nothing_half_written(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    expected = {"config.yaml", "environment.json", "metrics.jsonl", "summary.html", "tensorboard", "best"}
    assert names == {*expected, "last.safetensors"}
    assert not list(folder.rglob("*.part"))
    assert Embedder.load(str(folder / "best")).dim == 4


def test_environment_names_versions_and_code(folder: Path) -> None:
    found = json.loads((folder / "environment.json").read_text())
    assert found["sumpool"] == __version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "numpy" in found["packages"]
    assert found["code"] is None or re.fullmatch(r"[0-9a-f]{40}", found["code"]["commit"])


def test_metrics_have_a_line_per_validation(folder: Path) -> None:
    entries = Run(folder).entries()
    assert [entry["step"] for entry in entries] == [2, 4, 6]
    assert all({"lr", "total", "contrastive", "p@1", "p@r", "map@r", "best"} <= set(entry) for entry in entries)
    assert entries[-1]["best"] == max(entry["map@r"] for entry in entries)


def test_tensorboard_has_the_curves(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    points = [(event.step, event.value) for event in events.Scalars("map_at_r")]
    assert points == [(entry["step"], pytest.approx(entry["map@r"])) for entry in Run(folder).entries()]


def test_runs_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sumpool.training.board.find_spec", lambda name: None)
    run = Run(tmp_path / "run")
    run.create("score: map@r\n")
    run.log(ENTRIES[0])
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert run.entries() == ENTRIES[:1]


def test_the_summary_needs_nothing_but_itself(folder: Path) -> None:
    page = (folder / "summary.html").read_text()
    tags = Tags(page).found
    assert not [attrs for _, attrs in tags if {"src", "href"} & set(attrs)]
    assert not {tag for tag, _ in tags} & {"script", "link", "img", "iframe"}
    assert "url(" not in page
    assert "@import" not in page
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in tags
    assert "prefers-color-scheme: dark" in page
    assert "dataset: toy" in page
    best = Run(folder).entries()[-1]["best"]
    assert f"<dt>map@r</dt><dd>{best:.4f}</dd>" in page


def test_the_summary_shows_the_best_scores_first() -> None:
    page = summary_page("a <run>", "map@r", ENTRIES, "lr: 1\n", "{}")
    assert "Best map@r at step 20; last validation at step 30." in page
    assert re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page) == [("map@r", "0.7500"), ("p@1", "0.6250")]
    assert re.findall(r"<figcaption>(.*?)</figcaption>", page) == ["map@r", "p@1", "total"]
    assert "<h1>a &lt;run&gt;</h1>" in page
    assert "Not validated yet" in summary_page("empty", "map@r", [], "", "")


def test_curves_are_drawn_to_scale() -> None:
    drawn = curve("loss", [(0, 0.0), (50, 1.0), (100, float("nan")), (150, 4.0)], mark=50)
    points = re.search(r'points="(.*?)"', drawn)
    assert points is not None
    (x0, y0), (x1, y1), (x2, y2) = (tuple(map(float, pair.split(","))) for pair in points[1].split())
    assert (x1 - x0) / (x2 - x0) == pytest.approx(1 / 3, abs=0.01)
    assert (y0 - y1) / (y0 - y2) == pytest.approx(1 / 4, abs=0.01)
    assert y0 > y2  # up is more
    assert re.findall(r' r="(.*?)"', drawn) == ["1.5", "4", "1.5"]
    assert curve("nothing", [(1, float("nan"))]) == ""


def test_long_curves_are_thinned_but_keep_the_marked_point() -> None:
    drawn = curve("loss", [(step, float(step)) for step in range(1, 5001)], mark=2345)
    assert 300 < drawn.count("<circle") < 410
    assert "step 2345: 2345" in drawn
    assert "step 5000: 5000" in drawn


def test_a_line_cut_short_is_left_out_and_later_ones_are_forgotten(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.create("score: map@r\n")
    for entry in ENTRIES:
        run.log(entry)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 40, "tot')
    assert run.entries() == ENTRIES
    run.forget_after(20)
    assert run.entries() == ENTRIES[:2]
    assert "last validation at step 20" in (tmp_path / "summary.html").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_said_in_one_sentence(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.create("score: map@r\n")
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"cannot log in .*No space left"):
        run.log(ENTRIES[0])


def test_only_one_process_writes(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", writes=False)
    run.create("score: map@r\n")
    run.log(ENTRIES[0])
    run.forget_after(0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--loss", "zsr/contrastive", "--pooling", "gap"), "the pooling gives none"),
        (("--loss", "triplet", "--loss-settings.triplet.margin", "x"), "margin of loss 'triplet' must be a number"),
        (("--loss", "far_push/proxy_nca", "--loss-settings", "{far_push: {weight: x}}"), "weight of far_push must be"),
        (("--loss", "ccp/xbm/contrastive", "--loss-settings.ccp.in_batch", "0"), "in_batch weighs the memory's term"),
    ],
)
def test_a_mistake_in_the_settings_leaves_no_folder(
    words: tuple[str, ...], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, *words, "--out", str(tmp_path / "run")]) != 0
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", POOLINGS)
def test_the_zero_shot_loss_wants_a_pooling_with_attributes(name: str) -> None:
    pooling = POOLINGS[name](16, 16)
    before = {key: value.clone() for key, value in pooling.state_dict().items()}
    random = torch.get_rng_state()
    if pooling(torch.randn(2, 16, 5, 5, generator=torch.Generator())).attributes is None:
        with pytest.raises(InputError, match="the pooling gives none"):
            require_attributes(pooling)
        return
    pooling.load_state_dict(before)
    require_attributes(pooling)
    assert pooling.training
    torch.testing.assert_close(dict(pooling.state_dict()), before)
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("line", ['{"step": 2, "lo', "3", "{}"])
def test_a_line_that_was_cut_short_is_forgotten(line: str, tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.create("score: map@r\n")
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1, "map@r": 0.5, "best": 0.5}}\n{line}')
    run.forget_after(9)
    assert [entry["step"] for entry in run.entries()] == [1]


def test_a_second_run_in_a_folder_is_refused(tmp_path: Path) -> None:
    Run(tmp_path).create("score: map@r\n")
    with pytest.raises(InputError, match="holds a run already"):
        Run(tmp_path).create("score: map@r\n")
