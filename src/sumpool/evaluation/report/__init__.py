"""Reports: runs and protocols as one page, and the same numbers as Markdown, CSV and LaTeX."""

from sumpool.evaluation.report.examples import example_rows, examples
from sumpool.evaluation.report.write import write_report
from sumpool.training.page import Number, figure, image, page, table

__all__ = ["Number", "example_rows", "examples", "figure", "image", "page", "table", "write_report"]
