"""Published numbers, copied from the thesis: they stand beside ours, in columns of their own, never mixed.

published/thesis_table_3_1.csv   fair protocol, chance-constrained programming (CCP)
published/thesis_table_3_2.csv   conventional protocol, CCP
published/thesis_table_5_1.csv   fair protocol, generalized sum pooling (GSP); with standard deviations
published/thesis_table_5_2.csv   conventional protocol, GSP
published/thesis_table_5_3.csv   fair protocol, with and without GSP and the zero-shot loss (ZSP)
published/thesis_table_5_4.csv   tuning protocol, fractional factorial of GSP's settings, on validation classes

Losses: C1 contrastive on cosines, C2 contrastive with two margins, MS multi-similarity, PNCA ProxyNCA++, PAnchor
ProxyAnchor. XBM is the memory, CCP-L and +L have embeddings inside the unit ball (normalize lipschitz).
"""

import csv
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

DATASETS = {"cub": "CUB", "cars": "Cars196", "sop": "SOP", "inshop": "In-shop"}
BACKBONES = {"bn_inception": "BN-Inception", "resnet50": "ResNet50"}
TABLES = ("3.1", "3.2", "5.1", "5.2", "5.3", "5.4")
LOSSES = {
    "original_contrastive": ["C1"],
    "contrastive": ["C2"],
    "multi_similarity": ["MS"],
    "triplet": ["Triplet"],
    "proxy_nca": ["PNCA", "ProxyNCA++"],
    "proxy_anchor": ["PAnchor", "ProxyAnchor"],
    "soft_triple": ["SoftTriplet-S/L"],
}
POOLINGS = {
    ("gap", False): "",
    ("gsp", True): "+GSP",
    ("gsp", False): "+GSP without ZSP",
    ("gap_attributes", True): "+ZSP without GSP",
}


class Published(NamedTuple):
    """One printed number, in percent."""

    table: str
    protocol: str
    backbone: str
    method: str
    dataset: str
    dim: int
    metric: str
    value: float
    std: float | None
    note: str

    @property
    def source(self) -> str:
        """How the number is cited."""
        return f"thesis table {self.table}"


@cache
def all_published() -> tuple[Published, ...]:
    """Every number of every table."""
    folder = files("sumpool") / "evaluation" / "published"
    texts = {table: (folder / f"thesis_table_{table.replace('.', '_')}.csv").read_text("utf-8") for table in TABLES}
    return tuple(_number(table, row) for table, text in texts.items() for row in csv.DictReader(text.splitlines()))


def _number(table: str, row: dict[str, Any]) -> Published:
    std = float(row["std"]) if row["std"] else None
    return Published(**{**row, "table": table, "dim": int(row["dim"]), "value": float(row["value"]), "std": std})


def published(method: str, dataset: str, protocol: str) -> list[Published]:
    """The printed numbers of a method, by its printed name, on a dataset, by our name for it, under a protocol.

    >>> [(row.source, row.dim, row.value) for row in published("C1+XBM+GSP", "cub", "fair") if row.metric == "P@1"]
    [('thesis table 5.1', 512, 67.0), ('thesis table 5.1', 128, 58.89)]
    """
    wanted = method, DATASETS.get(dataset), protocol
    return [row for row in all_published() if (row.method, row.dataset, row.protocol) == wanted]


def published_names(loss: str, pooling: str, normalize: str = "unit") -> list[str]:
    """What the tables call a loss chain with a pooling; nothing where they do not have it.

    >>> published_names("zsr/xbm/original_contrastive", "gsp")
    ['C1+XBM+GSP']
    >>> published_names("ccp/contrastive", "gap", "lipschitz")
    ['C2+CCP', 'C2+CCP-L']
    """
    *around, base = loss.split("/")
    ending = POOLINGS.get((pooling, "zsr" in around))
    inside = {"xbm": ["+XBM"], "ccp": ["+CCP"]}
    if normalize == "lipschitz":
        inside = {"xbm": ["+XBM+L"], "ccp": ["+CCP", "+CCP-L"]}
    kinds = [name for name in around if name != "zsr"]
    if ending is None or len(kinds) > 1 or not set(kinds) <= set(inside):
        return []
    middles = inside[kinds[0]] if kinds else [""]
    return [name + middle + ending for name in LOSSES.get(base, []) for middle in middles]
