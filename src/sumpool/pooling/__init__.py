"""Pooling: a set of local features in, one vector per image out."""

from collections.abc import Callable
from typing import Any

from sumpool.pooling.attention import Attention
from sumpool.pooling.base import Pooling
from sumpool.pooling.cbam import CBAM
from sumpool.pooling.crow import CroW
from sumpool.pooling.delf import DeLF
from sumpool.pooling.gap import GAP
from sumpool.pooling.gap_attributes import GAPAttributes
from sumpool.pooling.gap_gmp import GAPGMP
from sumpool.pooling.gem import GeM
from sumpool.pooling.gem_gsp import GeMGSP
from sumpool.pooling.gemax import GeMax
from sumpool.pooling.gmp import GMP
from sumpool.pooling.gmp_gsp import GMPGSP
from sumpool.pooling.gsop import GSoP
from sumpool.pooling.gsp import GSP
from sumpool.pooling.lse import LSE
from sumpool.pooling.netvlad import NetVLAD
from sumpool.pooling.otp import OTP
from sumpool.pooling.solar import SOLAR
from sumpool.pooling.tsmk import TSMK
from sumpool.pooling.weldon import WELDON
from sumpool.registry import create

POOLINGS: dict[str, Callable[..., Pooling]] = {
    "gap": GAP,
    "gmp": GMP,
    "gap+gmp": GAPGMP,
    "gem": GeM,
    "gemax": GeMax,
    "lse": LSE,
    "attention": Attention,
    "cbam": CBAM,
    "crow": CroW,
    "delf": DeLF,
    "gsop": GSoP,
    "otp": OTP,
    "solar": SOLAR,
    "tsmk": TSMK,
    "netvlad": NetVLAD,
    "weldon": WELDON,
    "gsp": GSP,
    "gmp+gsp": GMPGSP,
    "gem+gsp": GeMGSP,
    "gap_attributes": GAPAttributes,
}

__all__ = [
    "CBAM",
    "GAP",
    "GAPGMP",
    "GMP",
    "GMPGSP",
    "GSP",
    "LSE",
    "OTP",
    "POOLINGS",
    "SOLAR",
    "TSMK",
    "WELDON",
    "Attention",
    "CroW",
    "DeLF",
    "GAPAttributes",
    "GSoP",
    "GeM",
    "GeMGSP",
    "GeMax",
    "NetVLAD",
    "Pooling",
    "create_pooling",
]


def create_pooling(name: str, in_features: int, dim: int | None = None, **settings: Any) -> Pooling:
    """Build a pooling by name with its own settings; `sumpool list poolings` shows the names."""
    return create("pooling", POOLINGS, name, in_features=in_features, dim=dim, **settings)
