"""The whole state of a run in one safetensors file, written so that a crash never leaves half of one.

Tensors are stored under numbers; everything else, with the numbers in the tensors' places, is JSON in the file's
metadata. Nothing is ever unpickled.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from sumpool.errors import InputError
from sumpool.files import write_atomically

TENSOR = "tensor"


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested dictionaries, lists, numbers, strings and tensors."""
    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps(_detach(state, tensors))
    write_atomically(path, save(tensors, metadata={"state": skeleton}))


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote."""
    if not path.is_file():
        raise InputError(f"no checkpoint at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            skeleton = json.loads(file.metadata()["state"])
            state: dict[str, Any] = _attach(skeleton, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (SafetensorError, ValueError, KeyError, TypeError) as reason:
        raise InputError(f"{path} is not a checkpoint of a training run: {reason}") from reason
    return state


def _detach(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The value with every tensor moved to `tensors`; dictionaries become lists of pairs, so keys keep their type."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # A copy: safetensors refuses tensors that share memory.
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {TENSOR: name}
    if isinstance(value, Mapping):
        return {"dict": [[key, _detach(entry, tensors)] for key, entry in value.items()]}
    if isinstance(value, list | tuple):
        return [_detach(entry, tensors) for entry in value]
    return value


def _attach(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if TENSOR in value:
            return tensors[value[TENSOR]]
        return {key: _attach(entry, tensors) for key, entry in value["dict"]}
    return [_attach(entry, tensors) for entry in value] if isinstance(value, list) else value


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of PyTorch's generators."""
    state = {"cpu": torch.get_rng_state()}
    return state | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def restore_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    """Continue the generators where they were."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
