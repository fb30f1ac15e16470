"""At full size the tables have the published methods; a method is compared with itself less its last part."""

from pathlib import Path

import numpy as np

from sumpool.evaluation.methods import parse_method
from sumpool.evaluation.protocol import create_protocol
from sumpool.evaluation.published import DATASETS, all_published
from sumpool.evaluation.results import MethodResult
from sumpool.studies.base import Call
from sumpool.studies.tables import TABLES, differences, judge, methods

PAPER = Call("paper", Path("out/tables"))


def result(method: str, score: float, ensemble: float | None = None) -> MethodResult:
    rng = np.random.default_rng(0)
    arrays = [None if mean is None else {"map@r": mean + rng.normal(0, 0.01, (2, 60))} for mean in (score, ensemble)]
    assert arrays[0] is not None
    labels = np.repeat(np.arange(20), 3)
    return MethodResult(method, "fair", "toy", 8, arrays[0], arrays[1], labels, [], [], selected_on_test=False)


def test_every_published_method_of_the_tables_becomes_trainings() -> None:
    for kind, tables in TABLES.items():
        for dataset, printed in DATASETS.items():
            names = methods(PAPER, kind, dataset)
            wanted = {row.method for row in all_published() if row.table in tables and row.dataset == printed}
            assert set(names) <= wanted
            built_on = {name.removesuffix("+GSP") for name in wanted if name.endswith("+GSP")}
            assert built_on & wanted <= set(names)
            protocol = create_protocol(kind, names, {"dataset": dataset})
            assert len(protocol.methods) == len(names)
            settings = [str(parse_method(name)[1:]) for name in wanted]
            assert len(names) == len(set(settings)) < len(wanted) + (kind == "conventional")


def test_a_method_is_compared_with_itself_less_its_last_part() -> None:
    results = [result("C2", 0.2, 0.3), result("C2+GSP", 0.3, 0.5), result("C1+XBM+GSP", 0.1, 0.1)]
    assert list(differences(results, "single")) == ["C2+GSP − C2"]
    assert differences(results, "ensemble")["C2+GSP − C2"]["mean"] > 0.15
    assert differences([result("C2", 0.2)], "ensemble") == {}


def test_claims_depend_on_the_scores() -> None:
    sure, unsure = ({"mean": 0.1, "p by Holm": p} for p in (0.01, 0.2))
    better, worse = ({"map@r": {"mean": mean}} for mean in (0.5, 0.4))
    good = judge({"t": {"C2": {"single": worse, "ensemble": better}}}, {"t": {"single": {"C2+GSP − C2": sure}}})
    bad = judge({"t": {"C2": {"single": better, "ensemble": worse}}}, {"t": {"single": {"C2+GSP − C2": unsure}}})
    assert len(good) == 2
    assert all(good.values())
    assert not any(bad.values())
