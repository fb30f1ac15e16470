"""A report groups what may be compared, keeps published numbers apart, and survives every name in every format."""

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sumpool.errors import InputError
from sumpool.evaluation.report.document import document
from sumpool.evaluation.report.forest import Difference, forest
from sumpool.evaluation.report.groups import Group, group_results
from sumpool.evaluation.report.runs import best_run
from sumpool.evaluation.report.sheets import difference_sheet, score_sheet, warnings
from sumpool.evaluation.report.spreadsheet import comma_separated
from sumpool.evaluation.report.text import escape_latex, latex, markdown
from sumpool.evaluation.statistics import compare, estimate, holm
from sumpool.training.page import Number

from .cases import NASTY, made_up

FORMATS = {"html": document, "markdown": markdown, "latex": latex, "csv": lambda title, groups: comma_separated(groups)}


def one_group(*results: object) -> Group:
    (group,) = group_results(list(results))  # type: ignore[arg-type]
    return group


def test_methods_are_compared_within_a_dataset_protocol_and_set_of_queries(tmp_path: Path) -> None:
    results = [
        made_up(tmp_path, "C2"),
        made_up(tmp_path, "C2", dataset="cars"),
        made_up(tmp_path, "MS"),
        made_up(tmp_path, "MS", protocol="conventional", folds=1),
        made_up(tmp_path, "MS", "fewer queries", level=0.1, queries=16),
    ]
    groups = group_results(results)
    assert [[result.method for result in group.results] for group in groups] == [
        ["C2", "MS"],
        ["C2"],
        ["MS"],
        ["fewer queries"],
    ]
    assert [bool(difference_sheet(group, "single").rows) for group in groups] == [True, False, False, False]


def test_numbers_are_those_of_the_statistics(tmp_path: Path) -> None:
    c2, ms = made_up(tmp_path, "C2"), made_up(tmp_path, "MS", level=0.6)
    group = one_group(c2, ms)
    found = estimate(ms.ensemble["map@r"], ms.labels)  # type: ignore[index]
    cell = score_sheet(group, "ensemble").rows[1]["MAP@R"]
    text, detail = f"{100 * found.mean:.2f} ± {100 * found.std:.2f}", f"[{100 * found.low:.2f}, {100 * found.high:.2f}]"
    assert cell == Number(found.mean, text, detail)
    difference = compare(ms.single["p@1"], c2.single["p@1"], c2.labels)
    row = difference_sheet(group, "single").rows[0]
    assert (row["method"], row["metric"]) == ("MS", "P@1")
    assert row["difference"].value == difference.difference.mean  # type: ignore[union-attr]
    assert row["effect"].value == difference.effect  # type: ignore[union-attr]


def test_p_values_are_adjusted_for_the_methods_compared(tmp_path: Path) -> None:
    results = [made_up(tmp_path, "C2"), made_up(tmp_path, "MS", level=0.51), made_up(tmp_path, "C1", level=0.52)]
    group = one_group(*results)
    rows = [row for row in difference_sheet(group, "single").rows if row["metric"] == "MAP@R"]
    raw = [compare(one.single["map@r"], results[0].single["map@r"], one.labels).p for one in results[1:]]
    assert [row["p"].value for row in rows] == raw  # type: ignore[union-attr]
    assert [row["p (Holm)"].value for row in rows] == holm(raw).tolist()  # type: ignore[union-attr]
    said = document("Report", [group])
    assert all(f"p = {p:.3f}</text>" in said for p in holm(raw))


def test_the_reference_can_be_chosen(tmp_path: Path) -> None:
    results = [made_up(tmp_path, "C2"), made_up(tmp_path, "MS", level=0.6)]
    (group,) = group_results(results, "MS")
    assert [row["method"] for row in difference_sheet(group, "single").rows] == ["C2"] * 3
    with pytest.raises(InputError, match="no method is called 'MD'"):
        group_results(results, "MD")


def test_published_numbers_stand_in_columns_of_their_own(tmp_path: Path) -> None:
    sheet = score_sheet(one_group(made_up(tmp_path, "C2+GSP"), made_up(tmp_path, "GMP", level=0.6)), "ensemble")
    found, none = sheet.rows
    assert sheet.apart == [
        "P@1 published (thesis table 5.1)",
        "MAP@R published (thesis table 5.1)",
        "MAP@R published (thesis table 5.3)",
    ]
    assert found["P@1 published (thesis table 5.1)"] == Number(68.85 / 100, "68.85 ± 0.41")
    assert none["P@1 published (thesis table 5.1)"] == "–"
    assert sheet.notes == []


def test_a_differing_setting_is_said(tmp_path: Path) -> None:
    given = {"backbone": "tiny", "weights": None, "lr": 0.01, "seed": 5, "device": "cpu"}
    sheet = score_sheet(one_group(made_up(tmp_path, "C2", given=given)), "single")
    assert sheet.rows[0]["P@1 published (thesis table 5.1)"] == Number(58.87 / 100, "58.87 ± 0.36")
    (note,) = sheet.notes
    assert note == (
        "C2: our setting differs from the published one in backbone (tiny, published: bn_inception), "
        "weights (None, published: pretrained), lr (0.01, published: 1e-05)."
    )


def test_conventional_numbers_are_those_of_the_backbone_and_size(tmp_path: Path) -> None:
    def printed(**given: object) -> str:
        result = made_up(tmp_path / str(given), "C1+XBM", protocol="conventional", dataset="sop", folds=1, given=given)
        sheet = score_sheet(one_group(result), "single")
        return sheet.rows[0]["P@1 published (thesis table 5.2)"].text  # type: ignore[union-attr]

    assert printed() == "79.29"
    assert printed(backbone="resnet50", dim=128) == "79.92"
    assert printed(backbone="resnet50") == "81.44"
    assert printed(backbone="tiny", weights=None) == "79.29"


@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_every_format_says_that_models_were_selected_on_the_test_set(tmp_path: Path, make: object) -> None:
    conventional = made_up(tmp_path, "C1+XBM", protocol="conventional", folds=1)
    said = "models were selected on the test set"
    assert said in make("Report", group_results([conventional])).lower()
    assert said not in make("Report", group_results([made_up(tmp_path, "C2")])).lower()


def test_one_training_and_validation_scores_are_said(tmp_path: Path) -> None:
    once = made_up(tmp_path, "C2", repeats=1)
    assert "only the choice of queries" in " ".join(warnings(one_group(once)))
    assert warnings(one_group(made_up(tmp_path, "MS"))) == []
    assert "validation classes" in " ".join(warnings(one_group(replace(once, scored_on="validation"))))


@pytest.mark.parametrize(
    ("name", "level", "classes", "shown"),
    [
        ("html", 0.25, 8, ">∞<"),
        ("html", -0.25, 8, ">−∞<"),
        ("markdown", -0.25, 8, " −∞ |"),
        ("latex", 0.25, 8, r"& $\infty$ \\"),
        ("csv", 0.25, 8, ",∞,"),
        ("markdown", 0.25, 1, " – |"),
        ("csv", 0.25, 1, ",–,"),
    ],
)
def test_effects_without_a_number(tmp_path: Path, name: str, level: float, classes: int, shown: str) -> None:
    c2 = made_up(tmp_path, "C2")
    c2 = replace(c2, labels=c2.labels % classes, ensemble=None)
    ms = replace(c2, method="MS", single={metric: scores + level for metric, scores in c2.single.items()})
    assert shown in FORMATS[name]("Report", group_results([c2, ms]))


class Texts(HTMLParser):
    """Tags and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> list[Group]:
    folder = tmp_path_factory.mktemp("nasty")
    results = [made_up(folder, "C2", name, folds=1, level=0.3 + n / 50) for n, name in enumerate(NASTY)]
    return group_results(results)


def test_html_shows_nasty_names_as_they_are(nasty: list[Group]) -> None:
    seen = Texts(document(NASTY[1], nasty))
    assert seen.tags.count("script") == 1  # the one that sorts
    assert all(link.startswith("data:") for link in seen.links)
    for name in NASTY:
        assert name in seen.texts


def test_csv_cells_are_no_formulas_and_read_back(nasty: list[Group]) -> None:
    rows = list(csv.DictReader(io.StringIO(comma_separated(nasty))))
    assert len(rows) == 3 * len(NASTY)
    assert [row["method"] for row in rows[::3]] == ["'=HYPERLINK(1)", *NASTY[1:]]
    assert all(row["reference"] == "'=HYPERLINK(1)" for row in rows[3:])
    assert float(rows[3]["mean"]) - float(rows[0]["mean"]) == pytest.approx(float(rows[3]["difference"]), abs=2e-4)
    assert not [cell for row in rows for cell in row.values() if cell and cell[0] in "=+@\t\r"]
    assert (rows[0]["published (thesis table 5.1)"], rows[0]["published std (thesis table 5.1)"]) == ("58.87", "0.36")


def test_markdown_tables_keep_their_columns(nasty: list[Group]) -> None:
    text = markdown("Report", nasty)
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1
    assert "<script" not in text
    assert r"50%\_of\\x \{a\} &amp; b\|c \#1 \~^$" in text


def test_latex_is_balanced_and_escaped(nasty: list[Group]) -> None:
    text = latex("Report", nasty)
    bare = re.sub(r"\\[\\{}$&#_%]", "", text.replace("\\\\\n", "\n"))
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    tables = re.findall(r"\\toprule(.*?)\\bottomrule", text, re.DOTALL)
    for rows in tables:
        lines = [line for line in re.sub(r"\\&", "", rows).splitlines() if "&" in line]
        assert len({line.count("&") for line in lines}) == 1
    assert r"50\%\_of\textbackslash{}x \{a\} \& b|c \#1 \textasciitilde{}\textasciicircum{}\$" in text
    assert escape_latex("[1]") == "{}[1]"  # else \\ of the row before takes it for a length


def test_forest_is_drawn_to_scale() -> None:
    rows = [Difference("a<b", 0.02, (0.01, 0.03), 0.001), Difference("c", -0.01, (-0.03, 0.01), 0.5)]
    drawn = forest("MAP@R: difference", rows)
    zero = float(re.search(r'class="zero" x1="(.*?)"', drawn)[1])  # type: ignore[index]
    ends = [tuple(map(float, pair)) for pair in re.findall(r'class="interval" x1="(.*?)" x2="(.*?)"', drawn)]
    places = [float(x) for x in re.findall(r'<circle.*? cx="(.*?)"', drawn)]
    assert places[0] - zero == pytest.approx(2 * (zero - places[1]), abs=0.2)
    assert ends[0][1] - zero == pytest.approx(zero - ends[1][0], abs=0.2)
    assert ends[0][0] > zero > ends[1][0]
    assert re.findall(r"<circle( class=\"open\")?", drawn) == ["", ' class="open"']
    assert 'aria-label="MAP@R: difference: a&lt;b +2.00 [+1.00, +3.00], p = 0.001; c −1.00' in drawn


def test_curves_show_every_run_and_the_best_is_chosen_by_validation(tmp_path: Path) -> None:
    result = made_up(tmp_path, "C2", folds=2, repeats=2)
    drawn = document("Report", group_results([result]))
    assert drawn.count("<polyline") == 4
    assert "f1r0, step 300: 0.3" in drawn
    (result.runs[2] / "metrics.jsonl").write_text('{"step": 100, "map@r": 0.9, "best": 0.9}\n')
    assert best_run(result.runs) == result.runs[2]


def test_missing_images_are_said_in_place_of_examples(tmp_path: Path) -> None:
    assert "<p>No examples: " in document("Report", group_results([made_up(tmp_path, "C2")]))
