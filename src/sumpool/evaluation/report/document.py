"""The report as one page that needs nothing besides itself."""

from collections.abc import Sequence
from html import escape

from sumpool.embedder import Embedder
from sumpool.errors import InputError
from sumpool.evaluation.report.examples import example_rows, examples
from sumpool.evaluation.report.forest import Difference, forest
from sumpool.evaluation.report.groups import Group, metrics
from sumpool.evaluation.report.runs import best_run, validation_line
from sumpool.evaluation.report.sheets import Sheet, about, difference_sheet, score_sheet, warnings
from sumpool.evaluation.results import MethodResult, embedded_test, run_config
from sumpool.evaluation.trial import load_embedded, prepared_test
from sumpool.training.curves import curves
from sumpool.training.page import page, table
from sumpool.training.run import BEST

QUERIES, NEIGHBOURS = 3, 6
READING = """<h2>How to read this</h2>
<p>Scores are in percent. ± is the standard deviation over the collections of one training per fold, as tables
usually print it; it is no confidence interval. Brackets hold the 95 % interval for new trainings and new classes.
Differences are in points, on the same queries; p is two-sided, and “Holm” adjusts it for the number of methods that are
compared with the reference on one metric. The effect is the difference in standard deviations of the paired differences
of the classes. Filled dots mark p (Holm) below 0.05. Columns in italics hold published numbers: those are not ours.</p>
"""
EXAMPLES = """<h3>Retrieval examples</h3>
<p>Queries at equal distances through the {part} images, the same for every method; the model of each method with the
best validation score. Next to a query: where its pooling looks. ✓ (solid frame) is an image of the same class, ✗
(dashed
frame) of another; the number is the similarity.</p>"""


def document(title: str, groups: Sequence[Group]) -> str:
    """The page: for every group its tables, forest plots, training curves and retrieval examples."""
    return page(title, [*(_group(group) for group in groups), READING])


def _group(group: Group) -> str:
    said = "".join(f'<p class="warning">{escape(text)}</p>' for text in warnings(group))
    parts = [_kind(group, kind) for kind in group.kinds]
    return "\n".join(
        [
            f"<h2>{escape(group.title)}</h2>",
            f"<p>{escape(about(group))}</p>",
            said,
            *parts,
            _curves(group),
            _seen(group),
        ]
    )


def _kind(group: Group, kind: str) -> str:
    scores, differences = score_sheet(group, kind), difference_sheet(group, kind)
    parts = [f"<h3>{escape(scores.title)}</h3>", _sheet(scores)]
    if differences.rows:
        parts += [_forests(group, kind), _sheet(differences)]
    return "\n".join(parts)


def _sheet(sheet: Sheet) -> str:
    notes = "".join(f"<p>{escape(note)}</p>" for note in sheet.notes)
    return table(sheet.rows, sheet.caption, apart=sheet.apart) + notes


def _forests(group: Group, kind: str) -> str:
    """One forest plot per metric."""
    drawn = []
    for metric in metrics(group.first):
        found = [(entry["method"], entry["comparison"][kind][metric]) for entry in group.methods[1:]]
        rows = [Difference(name, one["difference"], tuple(one["ci95"]), one["p holm"]) for name, one in found]
        title = f"{metric.upper()}: difference to {group.first.method} in points, with 95 % interval and p (Holm)"
        drawn.append(forest(title, rows))
    return f'<div class="grid">{"".join(drawn)}</div>'


def _curves(group: Group) -> str:
    """Validation scores of every method, all its runs in one figure."""
    figures = [
        curves(_curve_title(result), [validation_line(folder) for folder in result.runs]) for result in group.results
    ]
    return f'<h3>Validation scores over the steps</h3>\n<div class="grid">{"".join(figures)}</div>'


def _curve_title(result: MethodResult) -> str:
    runs = "1 run" if len(result.runs) == 1 else f"{len(result.runs)} runs"
    return f"{result.method}: {run_config(result.runs[0]).score.upper()}, {runs}"


def _seen(group: Group) -> str:
    """Retrieval examples of every method, the same queries for all."""
    parts = [f"<h4>{escape(result.method)}</h4>\n{_examples(result)}" for result in group.results]
    return "\n".join([EXAMPLES.format(part=group.first.scored_on), *parts])


def _examples(result: MethodResult) -> str:
    """Examples of one method; a sentence in their place where images cannot be shown."""
    run = best_run(result.runs)
    config, part = run_config(run), result.scored_on
    try:
        embedder = Embedder.load(run / BEST).eval()
        dataset = prepared_test(config, embedder, part)
        vectors = (embedded_test(run) if part == "test" else load_embedded(run, part)).vectors
        if len(vectors) != len(dataset):
            raise InputError(f"{len(dataset) - len(vectors)} images could not be read when the run was made")
        return examples(embedder, dataset, vectors, example_rows(dataset, QUERIES), NEIGHBOURS, config.distance)
    except (InputError, FileNotFoundError) as reason:
        return f"<p>No examples: {escape(str(reason))}</p>"
