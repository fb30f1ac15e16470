"""Reports: runs and protocols as one page, and the same numbers as Markdown, CSV and LaTeX."""

from sumpool.training.page import Number, figure, image, page, table

__all__ = ["Number", "figure", "image", "page", "table"]
