"""Write a report in the format that the ending of its file asks for."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sumpool.errors import InputError
from sumpool.evaluation.report.document import document
from sumpool.evaluation.report.groups import Group, load_groups
from sumpool.evaluation.report.spreadsheet import comma_separated
from sumpool.evaluation.report.text import latex, markdown
from sumpool.files import write_atomically

FORMATS: dict[str, Callable[[str, Sequence[Group]], str]] = {
    ".html": document,
    ".md": markdown,
    ".csv": lambda title, groups: comma_separated(groups),
    ".tex": latex,
}


def write_report(
    folders: Iterable[Path], files: Iterable[Path], title: str = "Report", reference: str | None = None
) -> list[Group]:
    """Combine runs and protocols into one report, in every format asked for; what it contains is returned."""
    makers = [(file, _maker(file)) for file in files]
    groups = load_groups(folders, reference)
    for file, make in makers:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, make(title, groups).encode())
    return groups


def _maker(file: Path) -> Callable[[str, Sequence[Group]], str]:
    if file.suffix.lower() not in FORMATS:
        raise InputError(f"a report ends in {', '.join(FORMATS)}, which says its format; got {str(file)!r}")
    return FORMATS[file.suffix.lower()]
