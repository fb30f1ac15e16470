"""What can be wrong with a dataset, one sentence each."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from sumpool.data.dataset import Dataset
from sumpool.data.record import ROLES, SPLITS
from sumpool.errors import InputError

Counts = Mapping[str, tuple[int, int]]
"""Split, query or gallery → (images, classes)."""


def counts(dataset: Dataset) -> dict[str, tuple[int, int]]:
    """Images and classes of every split, and of queries and gallery where they differ."""
    found: dict[str, tuple[int, int]] = {}
    for key in (*SPLITS, *ROLES[1:]):
        members = [record.label for record in dataset.records if key in (record.split, record.role)]
        if members:
            found[key] = (len(members), len(set(members)))
    return found


def require_counts(dataset: Dataset, published: Counts) -> None:
    """Refuse a dataset whose numbers differ from the published ones, and say which."""
    found = counts(dataset)
    wrong = [
        "{} has {} images of {} classes, published {} of {}".format(key, *found.get(key, (0, 0)), *expected)
        for key, expected in published.items()
        if found.get(key) != expected
    ]
    if wrong:
        raise InputError(f"{dataset.name} is not complete: {'; '.join(wrong)} (verify=False reads it anyway)")


def require_files(dataset: Dataset) -> None:
    """Refuse a dataset whose lists name files that are not there."""
    paths = [record.source for record in dataset.records if isinstance(record.source, Path)]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise InputError(f"{dataset.name} lacks {len(missing)} of {len(paths)} images, for example {missing[0]}")


def require_sound(dataset: Dataset) -> Dataset:
    """Refuse what makes retrieval meaningless: an image listed twice, a query whose class the gallery lacks."""
    seen: set[tuple[str, object]] = set()
    for record in dataset.records:
        key = (record.title, record.box)
        if key in seen:
            raise InputError(f"{dataset.name} lists {record.title} twice: keep one row per image")
        seen.add(key)
    if dataset.has_roles:
        _require_answers(dataset)
    return dataset


def _require_answers(dataset: Dataset) -> None:
    gallery = {record.label for record in dataset.records if record.role != "query"}
    lost = sorted({record.label for record in dataset.records if record.role == "query"} - gallery)
    if lost:
        raise InputError(
            f"{dataset.name} has queries of class {dataset.class_names[lost[0]]!r} but no gallery image of it"
            f" ({len(lost)} such classes): add gallery images or drop these queries"
        )


def remarks(dataset: Dataset) -> list[str]:
    """What is allowed but worth knowing: classes with one image, splits that share classes."""
    sizes = Counter(record.label for record in dataset.records)
    single = [label for label, size in sizes.items() if size == 1]
    found = []
    if single:
        found.append(
            f"{len(single)} of {len(sizes)} classes have one image, for example {dataset.class_names[single[0]]!r}:"
            " it has no positive pair and no correct answer as a query"
        )
    if shared := shared_classes(dataset):
        found.append(f"{len(shared)} classes appear in more than one split, so test classes are not all unseen")
    return found


def shared_classes(dataset: Dataset) -> set[int]:
    """Classes that are in several splits; empty for a class-disjoint protocol."""
    pairs = {(record.label, record.split) for record in dataset.records}
    return {label for label, splits in Counter(label for label, _ in pairs).items() if splits > 1}
