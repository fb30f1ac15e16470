"""Losses by name, and objectives from a chain such as `zsr/xbm/original_contrastive`: the loss innermost."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

import sumpool.losses as folder  # its table is read when a function is called: the folder imports this file
from sumpool.errors import InputError
from sumpool.losses.base import PairLoss
from sumpool.losses.centres import REGULARISERS
from sumpool.losses.checks import Classes, setting
from sumpool.losses.memory import Memory
from sumpool.losses.objective import Objective, Term
from sumpool.losses.presets import preset as preset_settings
from sumpool.losses.proxies import Proxies, ProxyLoss
from sumpool.losses.zero_shot import ZeroShotPrediction
from sumpool.registry import create, lookup

# Wrappers that add a term, and wrappers that extend the loss to another reference set; outermost first.
ADDED: dict[str, type[nn.Module]] = {"zsr": ZeroShotPrediction, **REGULARISERS}
SETS: dict[str, type[nn.Module]] = {"ccp": Proxies, "xbm": Memory}
WRAPPERS = ADDED | SETS
PLACES = {"zsr": 0, **dict.fromkeys(REGULARISERS, 1), "ccp": 2, "xbm": 3}
ORDER = "the order is zsr (zero-shot prediction), centre regulariser, ccp (proxies), xbm (memory), loss"


def create_loss(name: str, preset: str | None = None, **settings: Any) -> Callable[..., Tensor]:
    """Build one loss by name; `preset` is a dataset (cub, cars, inshop, sop), overridden by the settings given.

    >>> create_loss("triplet", preset="cars").margin
    0.119
    """
    return create("loss", folder.LOSSES, name, **(preset_settings(preset, name) if preset else {}) | settings)


def create_objective(
    chain: str,
    classes: int | Sequence[int] | Sequence[str] | None = None,
    dim: int | None = None,
    preset: str | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Objective:
    """Build an objective from a chain of names, with settings per name over a dataset's preset.

    `classes` (a number, or the list of labels) and `dim` are needed where something is learned per class. Besides the
    keyword arguments of a component, `weight` is accepted for a regulariser (default 1) and for `zsr`, where it is the
    λ of (1−λ)·rest + λ·zero-shot (default 0.1).

    >>> objective = create_objective("zsr/xbm/original_contrastive", classes=100, dim=128, preset="cub")
    >>> [(term.name, term.weight) for term in objective.terms]
    [('original_contrastive', 0.9), ('zsr', 0.1)]
    """
    names = parse_chain(chain)
    arguments = _arguments(names, preset, settings or {})
    weights = {
        name: setting(f"weight of {name}", arguments[name].pop("weight", 0.1 if name == "zsr" else 1.0))
        for name in names
        if name in ADDED
    }
    count = None if classes is None else Classes(classes).count
    build = partial(_build, sizes={"classes": count, "dim": dim}, arguments=arguments)
    loss = build(folder.LOSSES, names[-1])
    for name in reversed(names):
        loss = build(SETS, name, loss=loss) if name in SETS else loss
    share = 1 - setting("weight of zsr", weights["zsr"], 0, 1) if "zsr" in weights else 1.0
    added = [Term(name, w if name == "zsr" else share * w, build(ADDED, name)) for name, w in weights.items()]
    return Objective([Term(names[-1], share, loss), *added], classes)


def parse_chain(chain: str) -> list[str]:
    """The names of a chain; one that makes no sense is refused with the reason.

    >>> parse_chain("zsr/contrastive/xbm")
    Traceback (most recent call last):
    ...
    sumpool.errors.InputError: 'zsr/contrastive/xbm' makes no sense: xbm wraps a loss, so a loss must follow it
    """
    names = [name.strip() for name in chain.split("/")]
    for name in names:
        lookup("name in a loss chain", {**WRAPPERS, **folder.LOSSES}, name)
    reason = _nonsense(names[:-1], names[-1])
    if reason:
        raise InputError(f"{chain!r} makes no sense: {reason}")
    return names


def _nonsense(wrappers: list[str], loss: str) -> str | None:
    """Why a chain makes no sense; None if it does."""
    if loss in WRAPPERS:
        return f"{loss} wraps a loss, so a loss must follow it"
    for name in wrappers:
        if name in folder.LOSSES:
            return f"{name} is a loss and must come last; for several losses give terms to an Objective"
        if name in SETS and not issubclass(folder.LOSSES[loss], PairLoss):
            return f"{loss} compares the batch with its own parameters, so there are no pairs for {name} to extend"
        if name in REGULARISERS and "ccp" not in wrappers and not issubclass(folder.LOSSES[loss], ProxyLoss):
            return f"{name} regularises class proxies, and {loss} has none: use a proxy loss, or ccp around a pair loss"
    if len(set(wrappers)) < len(wrappers):
        return "a wrapper appears twice"
    return None if wrappers == sorted(wrappers, key=PLACES.__getitem__) else ORDER


def _arguments(
    names: list[str], preset: str | None, settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The keyword arguments of every component of a chain: the preset's, overridden by those given."""
    for name in settings:
        if name not in names:
            raise InputError(f"there are settings for {name!r}, which is not in the chain {'/'.join(names)!r}")
        if not isinstance(settings[name], Mapping):
            raise InputError(f"the settings of {name} must be a dictionary of names and values, got {settings[name]!r}")
    return {name: (preset_settings(preset, name) if preset else {}) | dict(settings.get(name, {})) for name in names}


def _build(
    table: Mapping[str, type[nn.Module]],
    name: str,
    sizes: Mapping[str, int | None],
    arguments: Mapping[str, Mapping[str, Any]],
    **more: nn.Module,
) -> nn.Module:
    """One component with the sizes it asks for and its own settings."""
    accepted = inspect.signature(table[name]).parameters
    needed = {size: value for size, value in sizes.items() if size in accepted}
    missing = [size for size, value in needed.items() if value is None]
    if missing:
        raise InputError(f"{name} learns something per class and needs {' and '.join(missing)}")
    return create("loss", table, name, **needed, **arguments[name], **more)
