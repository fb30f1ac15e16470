"""What the figures of the studies share: an empty figure, and colours that colour-blind readers can tell apart."""

from typing import Any

from sumpool.errors import InputError

BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
SKY, PURPLE, GREY, YELLOW = "#56b4e9", "#cc79a7", "#999999", "#b8a900"  # the yellow darkened, to be seen on white
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE, GREY, YELLOW)  # after Okabe and Ito


def new_figure(width: float, height: float) -> Any:
    """A figure outside pyplot, so that it needs no display; sizes in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise InputError("drawing needs matplotlib: pip install 'sumpool[plot]'") from missing
    return Figure(figsize=(width, height), layout="constrained")
