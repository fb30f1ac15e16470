"""The published numbers are the printed ones, found only under the printed method, dataset and protocol."""

from collections import Counter
from itertools import product

import pytest

from sumpool.evaluation.published import LOSSES, all_published, published, published_names


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
        ("C2+ZSP without GSP", "cars", "fair", 128, "MAP@R", 17.67),
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
    assert not published("C1+XBM+GAP", "cub", "fair")


@pytest.mark.parametrize(
    ("loss", "pooling", "normalize", "names"),
    [
        ("contrastive", "gap", "unit", ["C2"]),
        ("zsr/contrastive", "gsp", "unit", ["C2+GSP"]),
        ("contrastive", "gsp", "unit", ["C2+GSP without ZSP"]),
        ("zsr/contrastive", "gap_attributes", "unit", ["C2+ZSP without GSP"]),
        ("xbm/original_contrastive", "gap", "lipschitz", ["C1+XBM+L"]),
        ("zsr/ccp/original_contrastive", "gsp", "lipschitz", ["C1+CCP+GSP", "C1+CCP-L+GSP"]),
        ("proxy_anchor", "gap", "unit", ["PAnchor", "ProxyAnchor"]),
        ("contrastive", "gem", "unit", []),
        ("zsr/contrastive", "gap", "unit", []),
        ("xbm/ccp/contrastive", "gap", "unit", []),
        ("circle", "gap", "unit", []),
    ],
)
def test_chains_have_the_printed_names(loss: str, pooling: str, normalize: str, names: list[str]) -> None:
    assert published_names(loss, pooling, normalize) == names


def test_every_printed_method_is_reached_from_some_chain() -> None:
    around = ("", "xbm/", "ccp/", "zsr/", "zsr/xbm/", "zsr/ccp/")
    chains = product(around, LOSSES, ("gap", "gsp", "gap_attributes"), ("unit", "lipschitz"))
    names = {name for first, loss, *rest in chains for name in published_names(first + loss, *rest)}
    assert {row.method for row in all_published()} <= names
