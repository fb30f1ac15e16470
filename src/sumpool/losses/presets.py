"""Settings of the losses per dataset, as used by the published comparisons.

`PRESETS[dataset][name]` holds keyword arguments of the loss, or of the wrapper (`xbm`, `ccp`), of that name; what is
not listed stays at its default.
"""

from typing import Any

from sumpool.registry import lookup


def _dataset(
    contrastive: tuple[float, float],
    triplet: float,
    multi_similarity: tuple[float, float, float],
    soft_triple: tuple[float, float, float, float, int],
    memory: int,
    proxies: int,
) -> dict[str, dict[str, Any]]:
    """One dataset's numbers by name; the arguments are in the order of the published table."""
    alpha, beta, base = multi_similarity
    scale, temperature, spread, margin, centres = soft_triple
    return {
        "original_contrastive": {"margin": 0.5},
        "contrastive": {"positive_margin": contrastive[0], "negative_margin": contrastive[1]},
        "triplet": {"margin": triplet},
        "multi_similarity": {"alpha": alpha, "beta": beta, "base": base},
        "proxy_anchor": {"margin": 0.1, "scale": 32.0},
        "proxy_nca": {"temperature": 0.11},
        "soft_triple": {
            "scale": scale,
            "temperature": temperature,
            "spread": spread,
            "margin": margin,
            "per_class": centres,
        },
        "xbm": {"batches": memory, "start": 1000},
        "ccp": {"per_class": proxies},
    }


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "cub": _dataset((0.0, 0.3841), 0.0961, (2, 40, 0.5), (20, 0.1, 0.2, 0.01, 10), 25, 8),
    "cars": _dataset((0.2652, 0.5409), 0.1190, (14.35, 75.83, 0.66), (17.69, 19.18, 0.0669, 0.3588, 10), 25, 8),
    "inshop": _dataset((0.2858, 0.5130), 0.0451, (8.49, 57.38, 0.41), (20, 0.1, 0.2, 0.01, 4), 400, 4),
    "sop": _dataset((0.2858, 0.5130), 0.0451, (2, 40, 0.5), (100, 47.9, 0.2, 0.3145, 4), 1400, 4),
}


def preset(dataset: str, name: str) -> dict[str, Any]:
    """The settings of a loss or wrapper on a dataset; empty where the defaults are used.

    >>> preset("cars", "multi_similarity")
    {'alpha': 14.35, 'beta': 75.83, 'base': 0.66}
    """
    return dict(lookup("preset", PRESETS, dataset).get(name, {}))
