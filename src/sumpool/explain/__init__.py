"""Explanation: which places and prototypes made an embedding, and which make two images similar."""

from sumpool.explain.explanation import Explanation, Pair, explain, explain_pair
from sumpool.explain.pictures import draw_explanation, draw_pair

__all__ = ["Explanation", "Pair", "draw_explanation", "draw_pair", "explain", "explain_pair"]
