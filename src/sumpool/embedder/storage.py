"""A model as a folder: safetensors and JSON, nothing that could run code."""

import hashlib
import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from sumpool.backbones import Backbone, create_backbone
from sumpool.embedder.card import model_card
from sumpool.errors import InputError
from sumpool.files import write_atomically
from sumpool.pooling import POOLINGS, Pooling, create_pooling
from sumpool.types import Preprocessing

if TYPE_CHECKING:
    from sumpool.embedder.embedder import Embedder

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"


def backbone_config(backbone: Backbone) -> dict[str, Any]:
    """Name and settings of a backbone."""
    if not hasattr(backbone, "config"):
        raise InputError(f"{type(backbone).__name__} has no configuration to save: build it with create_backbone")
    return backbone.config


def pooling_config(pooling: Pooling) -> dict[str, Any]:
    """Name and settings of a pooling."""
    for name, entry in POOLINGS.items():
        if entry is type(pooling):
            return {"name": name, **pooling.settings}
    raise InputError(
        f"{type(pooling).__name__} is not in POOLINGS, so it could not be loaded again: add it there first"
    )


def fingerprint(config: dict[str, Any], state: dict[str, Tensor]) -> str:
    """SHA-256 of the configuration and of every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save(embedder: "Embedder", folder: Path) -> None:
    """Write the three files; a model card that is there already, perhaps edited, is kept."""
    config = embedder.config
    state = {key: value.detach().cpu().contiguous() for key, value in embedder.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"library": "sumpool", **config}, indent=2) + "\n"
    write_atomically(folder / CONFIG, text.encode())
    write_atomically(folder / WEIGHTS, to_bytes(state, metadata={"format": "pt"}))
    if not (folder / CARD).exists():
        write_atomically(folder / CARD, model_card(config, embedder.dim).encode())


def find(source: str | Path) -> Path:
    """The folder itself, or a hub repository's local copy, downloaded when it is not there yet."""
    if Path(source).is_dir():
        return Path(source)
    owner, slash, name = str(source).partition("/")
    if not (owner and slash and name) or "/" in name or owner in (".", ".."):
        raise InputError(f"no model at {source}: expected a folder or a hub repository owner/name")
    try:
        hub = import_module("huggingface_hub")
    except ImportError as missing:
        raise InputError(f"no folder {source}; to load it from the hub, pip install 'sumpool[hub]'") from missing
    try:
        return Path(hub.snapshot_download(str(source), allow_patterns=[CONFIG, WEIGHTS]))
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as reason:
        raise InputError(f"no folder {source}, and the hub says: {str(reason).splitlines()[0]}") from reason


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration, checked for its parts."""
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{folder} holds no model: it has no {CONFIG}")
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except ValueError as reason:
        raise InputError(f"{path} is not JSON: {reason}") from reason
    for part in ("backbone", "preprocessing", "pooling", "normalize"):
        if not isinstance(config, dict) or part not in config:
            raise InputError(f"{path} is not the configuration of an embedder: it lacks {part!r}")
    return config


def rebuild(config: dict[str, Any]) -> tuple[Backbone, Pooling, str]:
    """The parts of the model, with weights still to be loaded."""
    backbone = create_backbone(**config["backbone"])
    # As saved, not as rebuilt: a newer library may describe the same network in other words.
    backbone.config = config["backbone"]
    preprocessing = config["preprocessing"]
    per_channel = {"mean": tuple(preprocessing["mean"]), "std": tuple(preprocessing["std"])}
    backbone.preprocessing = Preprocessing(**{**preprocessing, **per_channel})
    return backbone, create_pooling(**config["pooling"]), config["normalize"]
