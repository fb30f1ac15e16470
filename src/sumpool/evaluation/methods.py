"""Methods by the names of the papers: `C2`, `C1+XBM+GSP`, `MS+CCP-L`, `PNCA+DeLF`, …

A name is parts joined by +: a loss (C2 if there is none), then XBM, CCP, CCP-L or L, then a pooling (GAP if there is
none). With GSP comes its zero-shot prediction, λ = 0.1; GSP-ZS leaves it out, and ZS has it without GSP.
`expand` turns a method into the complete settings of a training under a protocol.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import asdict
from itertools import takewhile
from typing import Any, NamedTuple

from sumpool.errors import InputError
from sumpool.losses import LOSSES
from sumpool.losses.base import PairLoss
from sumpool.losses.chain import parse_chain
from sumpool.pooling import POOLINGS
from sumpool.registry import nearest
from sumpool.training.config import TrainConfig, merged
from sumpool.training.presets import PROTOTYPES, norm_settings, protocol_settings

LOSS_NAMES = {
    "C1": "original_contrastive",
    "C2": "contrastive",
    "MS": "multi_similarity",
    "Triplet": "triplet",
    "PNCA": "proxy_nca",
    "ProxyNCA++": "proxy_nca",
    "PAnchor": "proxy_anchor",
    "ProxyAnchor": "proxy_anchor",
    "SoftTriple": "soft_triple",
    "SoftTriplet-S/L": "soft_triple",
    "LIBC": "libc",
}


class Wrapper(NamedTuple):
    """The reference set that a part adds to the loss, and whether it replaces the unit norm by the Lipschitz norm."""

    chain: str
    lipschitz: bool


WRAPPER_NAMES = {
    "XBM": Wrapper("xbm", False),
    "CCP": Wrapper("ccp", False),
    "CCP-L": Wrapper("ccp", True),
    "L": Wrapper("", True),
}
POOLING_NAMES = {
    "GAP": "gap",
    "GMP": "gmp",
    "GAP+GMP": "gap+gmp",
    "GeMean": "gem",
    "GeMax": "gemax",
    "CBAM": "cbam",
    "CroW": "crow",
    "DeLF": "delf",
    "GSoP": "gsop",
    "OTP": "otp",
    "OTP-64x128": "otp",
    "SOLAR": "solar",
    "T-SMK": "tsmk",
    "NetVLAD": "netvlad",
    "NetVLAD-64x128": "netvlad",
    "WELDON": "weldon",
    "GSP": "gsp",
    "GMP+GSP": "gmp+gsp",
    "GeMean+GSP": "gem+gsp",
    "GSP-ZS": "gsp",
    "GMP+GSP-ZS": "gmp+gsp",
    "GeMean+GSP-ZS": "gem+gsp",
    "ZS": "gap_attributes",
}
SMALL, LARGE = {"pooling_settings": {"prototypes": 8}}, {"pooling_settings": {"prototypes": 64}, "dim": 64 * 128}
POOLING_SIZES: dict[str, dict[str, Any]] = {
    "OTP": SMALL,
    "NetVLAD": SMALL,
    "OTP-64x128": LARGE,
    "NetVLAD-64x128": LARGE,
}

# The named ones, for `sumpool list methods`.
METHODS = {
    "C1": "contrastive loss on cosines, average pooling",
    "C2": "contrastive loss on distances with two margins, average pooling",
    "MS": "multi-similarity loss",
    "Triplet": "triplet loss over all triplets of the batch",
    "PNCA": "ProxyNCA++: softmax over class proxies (also ProxyNCA++)",
    "PAnchor": "proxy anchor loss (also ProxyAnchor)",
    "SoftTriple": "softmax over several centres per class (table 3.1: SoftTriplet-S/L)",
    "LIBC": "intra-batch message passing",
    "C1+XBM": "C1 against a memory of past batches too; C2+XBM likewise",
    "C1+XBM+L": "the same with the Lipschitz norm v/max(1, ‖v‖); +L works for every loss over pairs",
    "C1+CCP": "chance-constrained programming, unit norm; C2, MS and Triplet likewise",
    "C1+CCP-L": "chance-constrained programming with the Lipschitz norm, as in the tables of CCP",
    "C2+GSP": "generalized sum pooling with zero-shot prediction; works for every loss",
    "C2+GSP-ZS": "generalized sum pooling without zero-shot prediction",
    "C2+ZS": "zero-shot prediction without generalized sum pooling",
    "C1+XBM+GSP": "memory and generalized sum pooling",
    "C1+CCP+GSP": "chance-constrained programming and generalized sum pooling",
    "MS+GSP": "multi-similarity loss and generalized sum pooling",
    "Triplet+GSP": "triplet loss and generalized sum pooling",
    "PNCA+GSP": "ProxyNCA++ and generalized sum pooling",
    "PAnchor+GSP": "proxy anchor and generalized sum pooling",
    "LIBC+GSP": "intra-batch message passing and generalized sum pooling",
    "GMP": "C2 with maximum pooling; every pooling works alone, and with a loss, such as PNCA+DeLF",
    "GAP+GMP": "C2 with the sum of average and maximum",
    "GeMean": "C2 with the generalized mean (GeM)",
    "GeMax": "C2 with generalized max pooling",
    "CBAM": "C2 with channel and spatial attention",
    "CroW": "C2 with cross-dimensional weighting",
    "DeLF": "C2 with attention",
    "GSoP": "C2 with second-order pooling",
    "OTP": "C2 with optimal transport aggregation, 8 prototypes; OTP-64x128 is the large one",
    "SOLAR": "C2 with second-order attention and GeM",
    "T-SMK": "C2 with smoothing, whitening and norm attention",
    "NetVLAD": "C2 with residuals to 8 centres; NetVLAD-64x128 is the large one",
    "WELDON": "C2 with the highest and lowest activations",
    "GMP+GSP": "C2 with maximum over the features that GSP keeps",
    "GeMean+GSP": "C2 with the generalized mean over the features that GSP keeps",
}


class Method(NamedTuple):
    """A method, read from its name."""

    name: str
    loss: str
    """Chain of loss names."""
    pooling: str
    settings: dict[str, Any]
    """What the method sets whatever the protocol says."""

    @property
    def slug(self) -> str:
        """The name of its folder."""
        return re.sub(r"[^\w+.-]", "-", self.name)


def parse_method(name: str) -> Method:
    """The method of a name, in upper or lower case.

    >>> parse_method("c1+CCP-L+gsp")[:3]
    ('C1+CCP-L+GSP', 'zsr/ccp/original_contrastive', 'gsp')
    """
    parts = [_canonical(part, name) for part in re.findall(r"[^+]+(?:\+\+)?", name)]
    losses = [part for part in parts[:1] if part in LOSS_NAMES]
    wrappers = list(takewhile(WRAPPER_NAMES.__contains__, parts[len(losses) :]))
    pooling = "+".join(parts[len(losses) + len(wrappers) :]) or "GAP"
    if not parts or pooling not in POOLING_NAMES:
        raise InputError(f"a method is a loss, then XBM, CCP or L, then a pooling, such as C1+XBM+GSP; got {name!r}")
    zero_shot = ["zsr"] if pooling == "ZS" or pooling.endswith("GSP") else []
    sets = sorted({WRAPPER_NAMES[part].chain for part in wrappers} - {""})
    chain = "/".join([*zero_shot, *sets, LOSS_NAMES[losses[0] if losses else "C2"]])
    parse_chain(chain)  # some losses have no pairs for XBM or CCP to extend
    pairs = issubclass(LOSSES[chain.split("/")[-1]], PairLoss)
    lipschitz = any(WRAPPER_NAMES[part].lipschitz for part in wrappers)
    if lipschitz and not pairs:
        raise InputError(f"{name!r}: the Lipschitz norm is for losses over pairs, {losses[0]} compares cosines only")
    norm = norm_settings("lipschitz" if lipschitz else "unit", chain) if pairs else {"normalize": "unit"}
    return Method("+".join(parts), chain, POOLING_NAMES[pooling], norm | POOLING_SIZES.get(pooling, {}))


def expand(method: Method, protocol: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The complete settings of a training: the protocol's for the dataset, the method's, and over them those given.

    A dataset without published settings, unless `preset` names one that has them, gets the rules of the protocol as on
    CUB and the plain defaults of the losses.
    """
    dataset = given.get("preset") or given["dataset"]
    published = dataset in PROTOTYPES
    if given.get("preset") and not published:
        raise InputError(f"preset {dataset!r} has no published settings: {nearest(dataset, PROTOTYPES)}")
    rules = protocol_settings(
        protocol, dataset if published else "cub", method.loss, method.pooling, given.get("backbone")
    )
    settings = merged(rules | ({} if published else {"preset": None}), method.settings)
    parts = {"dataset": given["dataset"], "loss": method.loss, "pooling": method.pooling}
    return asdict(TrainConfig.from_dict(merged(settings, applicable(method, given)) | parts))


def applicable(method: Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings without those of components that the method does not have."""
    accepted = {
        "pooling_settings": inspect.signature(POOLINGS[method.pooling]).parameters,
        "loss_settings": method.loss.split("/"),
        "ccp_settings": given.get("ccp_settings", {}) if "ccp" in method.loss.split("/") else {},
    }
    own = dict(given)
    for name, keys in accepted.items():
        if name in given:
            own[name] = {key: value for key, value in given[name].items() if key in keys}
    return own


def _canonical(part: str, name: str) -> str:
    """A part of a name as the papers write it."""
    atoms = [atom for pooling in POOLING_NAMES for atom in pooling.split("+")]
    known = {atom.lower(): atom for atom in (*LOSS_NAMES, *WRAPPER_NAMES, *atoms)}
    if part.strip().lower() not in known:
        raise InputError(f"unknown part {part!r} of method {name!r}: {nearest(part, known)}")
    return known[part.strip().lower()]
