"""The published numbers are the printed ones, found only under the printed method, dataset and protocol."""

from collections import Counter
from dataclasses import replace

import pytest

from sumpool.evaluation.published import DATASETS, all_published, published, published_for
from sumpool.training.config import TrainConfig


def test_every_table_is_complete() -> None:
    assert Counter(row.table for row in all_published()) == {
        "3.1": 13 * 4 * 2 * 2,  # methods × datasets × dimensions × metrics
        "3.2": 6 * 4,
        "5.1": 15 * 4 * 2 * 2,
        "5.2": 6 * 4 * 2,
        "5.3": 4 * 4 * 2,
        "5.4": 9 * 2,
    }
    where = [
        (row.table, row.backbone, row.method, row.dataset, row.dim, row.metric, row.note) for row in all_published()
    ]
    assert len(where) == len(set(where))
    assert all(15 < row.value < 95 for row in all_published())


def test_the_sums_of_the_tables_are_those_of_the_print() -> None:
    """A digit changed by mistake changes a sum."""
    sums = {
        table: round(sum(row.value for row in all_published() if row.table == table), 2) for table in ("3.1", "5.1")
    }
    assert sums == {"3.1": 11679.69, "5.1": 13364.17}
    assert round(sum(row.std or 0 for row in all_published()), 2) == 61.17


@pytest.mark.parametrize(
    ("method", "dataset", "protocol", "dim", "metric", "value"),
    [
        ("C1+XBM+GSP", "cub", "fair", 512, "P@1", 67.00),
        ("C1+CCP-L", "sop", "fair", 128, "MAP@R", 48.07),
        ("MS+CCP-L", "inshop", "conventional", 512, "R@1", 91.84),
        ("C1+XBM+GSP", "cars", "conventional", 128, "MAP@R", 23.87),
        ("C2+ZS", "cars", "fair", 128, "MAP@R", 17.67),
    ],
)
def test_numbers_of_the_print(method: str, dataset: str, protocol: str, dim: int, metric: str, value: float) -> None:
    rows = published(method, dataset, protocol)
    assert value in [row.value for row in rows if (row.dim, row.metric) == (dim, metric)]


def test_the_doubtful_number_is_kept_with_a_note() -> None:
    (row,) = [row for row in published("C1+XBM+GSP", "cars", "conventional") if row.note]
    assert (row.value, row.note) == (36.11, "printed so; probably 26.11")


def test_nothing_is_found_where_one_of_three_differs() -> None:
    assert published("C1+XBM+GSP", "cub", "fair")
    assert not published("C1+XBM+GSP", "cub", "tuning")
    assert not published("C1+XBM+GSP", "glyphs", "fair")
    assert not published("C1+XBM+GeMean", "cub", "fair")


def test_a_method_is_found_under_every_printed_name_of_it() -> None:
    tables = {"3.1": 85.29, "5.1": 85.26}
    for name in ("ProxyAnchor", "PAnchor"):
        rows = [row for row in published(name, "cars", "fair") if (row.dim, row.metric) == (512, "P@1")]
        assert {row.table: row.value for row in rows} == tables


def test_a_run_is_found_by_what_it_trained() -> None:
    config = TrainConfig("sop", loss="ccp/multi_similarity", pooling="gap", normalize="lipschitz")
    assert {row.method for row in published_for(config, "fair")} == {"MS+CCP-L"}
    assert not published_for(replace(config, normalize="unit"), "fair")
    assert not published_for(replace(config, pooling="gem"), "fair")
    assert not published_for(replace(config, dataset="glyphs"), "fair")
    assert {row.table for row in published_for(config, "conventional")} == {"3.2"}


def test_every_printed_method_has_a_name_of_ours() -> None:
    datasets = {printed: ours for ours, printed in DATASETS.items()}
    for row in all_published():
        assert row in published(row.method, datasets[row.dataset], row.protocol)
