"""A dataset in words: its splits, folds and oddities."""

import statistics
from collections import Counter

from sumpool.data.checks import counts, remarks, shared_classes
from sumpool.data.dataset import Dataset
from sumpool.data.folds import fold_ranges

_FOLDS = {4: "fair protocol", 5: "tuning", 3: "tuning"}


def report(dataset: Dataset) -> list[str]:
    """Lines for `sumpool data info`."""
    lines = [f"{dataset.name}: {len(dataset)} images of {len(dataset.classes)} classes"]
    for key, (images, classes) in counts(dataset).items():
        members = [record.label for record in dataset.records if key in (record.split, record.role)]
        sizes = Counter(members)
        lines.append(
            f"  {key:<8}{images:>7} images {classes:>6} classes, {min(sizes.values())} to {max(sizes.values())}"
            f" images a class (median {statistics.median(sizes.values()):g}), {_span(dataset, sizes)}"
        )
    lines.append("  classes " + ("shared between splits" if shared_classes(dataset) else "disjoint between splits"))
    lines += [f"  note: {remark}" for remark in remarks(dataset)]
    return lines + _folds(dataset)


def _span(dataset: Dataset, sizes: "Counter[int]") -> str:
    return f"{dataset.class_names[min(sizes)]} … {dataset.class_names[max(sizes)]}"


def _folds(dataset: Dataset) -> list[str]:
    """The class ranges that the protocols hold out of the training split."""
    trained = len({record.label for record in dataset.records if record.split == "train"})
    return [
        f"  {parts} folds of the training classes ({use}): "
        + ", ".join(f"{fold.start}–{fold.stop - 1}" for fold in fold_ranges(trained, parts))
        for parts, use in _FOLDS.items()
        if trained >= parts
    ]
