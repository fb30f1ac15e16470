"""Weights files: read without executing anything, checked as a whole, copied all or not at all."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from sumpool.errors import InputError

State = dict[str, Tensor]


def read_weights(path: str | Path) -> State:
    """The tensors of a `.safetensors` file, or of a PyTorch file read in its weights-only mode."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no weights file at {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as reason:  # PyTorch's reader stumbles over a file of another kind in a dozen ways
        said = str(reason).strip().splitlines() or [type(reason).__name__]
        raise InputError(f"{path} is not a readable weights file: {said[0]}") from reason
    content = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise InputError(f"{path} holds {type(content).__name__}, expected a dictionary of tensors by name")
    return content


def load_weights(module: nn.Module, path: str | Path, layout: Callable[[State], State] = dict) -> None:
    """Copy the file at `path` into `module`, after every key and shape has been found right.

    `layout` turns the names of a publicly known file into the module's; a file that has the module's names already is
    taken as it is. BatchNorm's batch counter, which old files lack, may be missing.
    """
    own = module.state_dict()
    found = read_weights(path)
    if not own.keys() & found.keys():
        found = layout(found)
    check_weights(own, found, path)
    module.load_state_dict(own | found)


def check_weights(own: State, found: State, path: str | Path) -> None:
    """Refuse weights that do not fit, with the first key and shape that differ."""
    for key, value in own.items():
        if key not in found and not key.endswith("num_batches_tracked"):
            raise InputError(f"{path} does not fit: it lacks {key!r} of shape {tuple(value.shape)}")
        if key in found and found[key].shape != value.shape:
            raise InputError(
                f"{path} does not fit: {key!r} has shape {tuple(found[key].shape)}, expected {tuple(value.shape)}"
            )
    for key, value in found.items():
        if key not in own:
            raise InputError(f"{path} does not fit: the network has no {key!r} of shape {tuple(value.shape)}")
