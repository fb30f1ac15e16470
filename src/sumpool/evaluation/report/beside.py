"""Published numbers beside ours: which belong to a result, and in what its setting differs from theirs."""

from sumpool.evaluation.methods import expand, parse_method
from sumpool.evaluation.published import BACKBONES, Published, published_for
from sumpool.evaluation.results import MethodResult, run_config
from sumpool.training.config import TrainConfig

FAIR_DIMS = {"single": 128, "ensemble": 512}
CONVENTIONAL = "BN-Inception", 512
METRICS = {"P@1": "p@1", "R@1": "p@1", "P@R": "p@r", "MAP@R": "map@r"}
# Where and how a run is computed, and what every repeat changes: no part of its setting.
INCIDENTAL = {
    "bad_images", "cache", "cache_dtype", "cache_gb", "checkpoint_every", "checkpointing", "chunk", "compile",
    "data_root", "device", "fold", "seed", "workers",
}  # fmt: skip
SHOWN = 6


def published_beside(result: MethodResult, kind: str) -> dict[tuple[str, str], Published]:
    """(our metric, source) → the printed number of the same method, dataset and protocol."""
    config = run_config(result.runs[0])
    rows = [row for row in published_for(config, result.protocol) if row.metric in METRICS]
    if result.protocol == "fair":
        rows = [row for row in rows if row.dim == FAIR_DIMS[kind]]
    else:
        own = BACKBONES.get(config.backbone), config.dim
        wanted = own if own in {(row.backbone, row.dim) for row in rows} else CONVENTIONAL
        rows = [row for row in rows if (row.backbone, row.dim) == wanted]
    return {(METRICS[row.metric], row.source): row for row in rows}


def setting_remark(result: MethodResult, row: Published) -> str:
    """In what our setting differs from that of a printed number, as a sentence; empty if in nothing."""
    config = run_config(result.runs[0])
    found = _differing(config, row)
    if not found:
        return ""
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{result.method}: our setting differs from the published one in {', '.join(found[:SHOWN])}{more}."


def _differing(config: TrainConfig, row: Published) -> list[str]:
    """Ours and theirs of every setting that decides the result and is not the same."""
    ours_of = {printed: ours for ours, printed in BACKBONES.items()}
    given = {"dataset": config.dataset, "backbone": ours_of[row.backbone]}
    dim = {"dim": row.dim} if row.protocol == "conventional" else {}
    theirs = TrainConfig.from_dict(expand(parse_method(row.method), row.protocol, given) | dim)
    names = [name for name in vars(theirs) if name not in INCIDENTAL]
    names.sort(key=lambda name: name not in ("backbone", "weights", "dim", "data_settings"))
    pairs = {name: (getattr(config, name), getattr(theirs, name)) for name in names}
    return [f"{name} ({ours}, published: {printed})" for name, (ours, printed) in pairs.items() if ours != printed]
