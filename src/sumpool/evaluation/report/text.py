"""The tables as Markdown and LaTeX; names come from users, so both escape them."""

import re
from collections.abc import Sequence

from sumpool.evaluation.report.groups import Group
from sumpool.evaluation.report.sheets import Sheet, about, difference_sheet, score_sheet, warnings
from sumpool.training.page import Cell, Number

LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "−": "$-$", "–": "--", "∞": r"$\infty$", "…": r"\dots{}", "“": "``", "”": "''",
}  # fmt: skip

SHRINK = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%" + "\n"


def markdown(title: str, groups: Sequence[Group]) -> str:
    """Headings, remarks and tables."""
    parts = [f"# {escape_markdown(title)}"]
    for group in groups:
        parts += [f"## {escape_markdown(group.title)}", escape_markdown(about(group))]
        parts += [f"**{escape_markdown(text)}**" for text in warnings(group)]
        parts += [_markdown_table(sheet) for sheet in sheets(group)]
    return "\n\n".join(parts) + "\n"


def latex(title: str, groups: Sequence[Group]) -> str:
    r"""One `table` per sheet, for `\input`; needs the packages booktabs and graphicx."""
    parts = [f"% {' '.join(title.split())}", r"% \usepackage{booktabs,graphicx}"]
    for group in groups:
        said = " ".join([group.title + ":", about(group), *warnings(group)])
        parts += [_latex_table(sheet, said) for sheet in sheets(group)]
    return "\n\n".join(parts) + "\n"


def sheets(group: Group) -> list[Sheet]:
    """Scores, then differences, of single models and of ensembles."""
    found = [make(group, kind) for kind in group.kinds for make in (score_sheet, difference_sheet)]
    return [sheet for sheet in found if sheet.rows]


def escape_markdown(text: str) -> str:
    """Text that Markdown and the HTML inside it show as it is.

    >>> escape_markdown("a|b_<c>")
    'a\\\\|b\\\\_&lt;c&gt;'
    """
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|#~])", r"\\\1", text)


def escape_latex(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> print(escape_latex("50 % of C_1 & ±"))
    50 \% of C\_1 \& $\pm$
    """
    text = " ".join(text.split())
    # After the \\ of the row before, a bracket or a star would be read as its argument.
    return ("{}" if text.startswith(("[", "*")) else "") + "".join(LATEX.get(letter, letter) for letter in text)


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else f"{cell.text} {cell.detail}".strip()


def _markdown_table(sheet: Sheet) -> str:
    columns = list(sheet.rows[0])
    rule = ["---:" if isinstance(sheet.rows[0][name], Number) else "---" for name in columns]
    lines = [map(escape_markdown, columns), rule]
    lines += [[escape_markdown(_text(row[name])) for name in columns] for row in sheet.rows]
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([f"### {escape_markdown(sheet.title)}", rows, *map(escape_markdown, sheet.notes)])


def _latex_table(sheet: Sheet, said: str) -> str:
    columns = list(sheet.rows[0])
    kinds = "".join("r" if isinstance(sheet.rows[0][name], Number) else "l" for name in columns)
    head = " & ".join(map(escape_latex, columns))
    lines = [" & ".join(escape_latex(_text(row[name])) for name in columns) for row in sheet.rows]
    body = " \\\\\n".join(lines)
    caption = escape_latex(" ".join([f"{sheet.title}.", said, *sheet.notes]))
    return (
        f"\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n{SHRINK}\\begin{{tabular}}{{{kinds}}}\n\\toprule\n"
        f"{head} \\\\\n\\midrule\n{body} \\\\\n\\bottomrule\n\\end{{tabular}}}}\n\\end{{table}}"
    )
