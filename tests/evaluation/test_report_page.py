"""The page in a real browser: pictures load, tables sort, nothing overflows, everything can be read."""

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sumpool.evaluation.report.document import document
from sumpool.evaluation.report.groups import group_results
from sumpool.evaluation.results import load_results
from sumpool.evaluation.trial import run_trial
from sumpool.training.config import TrainConfig
from sumpool.training.page import Number, figure, page, table

from .browser import look
from .cases import NASTY, SMALL, made_up

WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs")
    results = [made_up(folder, "C2"), made_up(folder, "C2+GSP", level=0.6), made_up(folder, "MS", level=0.45)]
    results += [made_up(folder, "C1", name, level=0.3 + number / 50) for number, name in enumerate(NASTY)]
    results += [made_up(folder, "C1+XBM", protocol="conventional", folds=1, given={"backbone": "resnet50"})]
    run_trial(TrainConfig.from_dict({"dataset": "glyphs", **SMALL, "pooling": "gsp"}), folder / "run")
    results += load_results(folder / "run")
    picture = figure(png(), "a picture", "red")
    return document("Report of " + NASTY[1], group_results(results)).replace("<h2>How", f"{picture}<h2>How")


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (50, 40), "red").save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_report_looks_right(report: str, tmp_path: Path, width: int, dark: bool) -> None:
    seen = look(report, tmp_path, width, dark)
    assert seen["dark"] is dark
    assert seen["background"] == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    assert seen["complaints"] == []
    assert seen["pictures"] == [96] * 3 * 8 + [50]  # 3 examples: query, weights, 6 found; and the one added
    assert seen["unnamed"] == 0
    assert seen["width"] == width
    assert seen["needed"] <= width
    assert seen["beyond"] == []
    assert seen["contrast"][0] >= 4.5, seen["contrast"]
    assert len(seen["sorts"]) == 6  # scores and differences of single models and ensembles; conventional ones; the run
    for columns in seen["sorts"]:
        for column in columns:
            assert column["focus"]
            assert column["marked"] == 1


def test_columns_sort_by_number_and_by_word_both_ways(tmp_path: Path) -> None:
    values: list[Any] = [Number(9.5, "9.5"), Number(-1.0, "−1.0"), "–", Number(10.0, "10.0"), Number(float("inf"), "∞")]
    rows = [{"name": name, "value": value} for name, value in zip("bEaDc", values, strict=True)]
    (name, value), (plain, _) = look(page("tables", [table(rows), table(rows[:1])]), tmp_path, 1280)["sorts"]
    assert name["orders"] == [["ascending", list("abcDE")], ["descending", list("EDcba")]]
    down, up = ["∞", "10.0", "9.5", "−1.0", "–"], ["−1.0", "9.5", "10.0", "∞", "–"]
    assert value["orders"] == [["descending", down], ["ascending", up]]
    assert plain["heading"].startswith("name")


def test_the_look_sees_what_is_wrong(tmp_path: Path) -> None:
    broken = """<img src="data:image/png;base64,AAAA"><div style="width: 2000px">wide</div>
    <p style="color: #999; background: #fff">pale</p><script>nonsense()</script>"""
    seen = look(page("broken", [broken]), tmp_path, 390)
    assert seen["pictures"] == [0]
    assert seen["unnamed"] == 1
    assert seen["needed"] > seen["width"] == 390
    assert any("wide" in element for element in seen["beyond"])
    assert seen["contrast"][0] < 3
    assert seen["contrast"][1] == "pale"
    assert any("nonsense" in complaint for complaint in seen["complaints"])
