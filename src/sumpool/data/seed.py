"""The random numbers of a generated set."""

import numpy as np

from sumpool.errors import InputError


def generator(seed: int) -> np.random.Generator:
    """Random numbers that follow a seed from 0 on."""
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}")
    return np.random.default_rng(seed)
