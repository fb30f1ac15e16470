"""Published numbers, copied from the thesis: they stand beside ours, in columns of their own, never mixed.

published/thesis_table_3_1.csv   fair protocol, chance-constrained programming (CCP)
published/thesis_table_3_2.csv   conventional protocol, CCP
published/thesis_table_5_1.csv   fair protocol, generalized sum pooling (GSP); with standard deviations
published/thesis_table_5_2.csv   conventional protocol, GSP
published/thesis_table_5_3.csv   fair protocol, with and without GSP and zero-shot prediction (ZS)
published/thesis_table_5_4.csv   tuning protocol, fractional factorial of GSP's settings, on validation classes

`sumpool.evaluation.methods` reads the names of the methods.
"""

import csv
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from sumpool.evaluation.methods import parse_method
from sumpool.training.config import TrainConfig

DATASETS = {"cub": "CUB", "cars": "Cars196", "sop": "SOP", "inshop": "In-shop"}
BACKBONES = {"bn_inception": "BN-Inception", "resnet50": "ResNet50"}
TABLES = ("3.1", "3.2", "5.1", "5.2", "5.3", "5.4")


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
    """The printed numbers of a method on a dataset, by our name for it, under a protocol.

    >>> [(row.source, row.dim, row.value) for row in published("C1+XBM+GSP", "cub", "fair") if row.metric == "P@1"]
    [('thesis table 5.1', 512, 67.0), ('thesis table 5.1', 128, 58.89)]
    """
    return _found(_parts(method), dataset, protocol)


def published_for(config: TrainConfig, protocol: str) -> list[Published]:
    """The printed numbers of what a run trained, whatever the run is called."""
    return _found((config.loss, config.pooling, config.normalize), config.dataset, protocol)


def _found(parts: tuple[str, str, str], dataset: str, protocol: str) -> list[Published]:
    wanted = parts, DATASETS.get(dataset), protocol
    return [row for row in all_published() if (_parts(row.method), row.dataset, row.protocol) == wanted]


@cache
def _parts(name: str) -> tuple[str, str, str]:
    """Loss chain, pooling and norm: what two names of one method have in common."""
    method = parse_method(name)
    return method.loss, method.pooling, method.settings["normalize"]
