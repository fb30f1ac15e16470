"""Which parameter learns how fast, and what decays."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from sumpool.training.config import TrainConfig


def parameter_groups(embedder: nn.Module, objective: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Optimizer groups, one per (part, learning-rate multiplier, decay), of everything that is trained.

    Vectors and scalars (norms, biases, learned mass) do not decay, nor do modules that say `weight_decay = False`.
    """
    groups: dict[tuple[str, float, float], list[nn.Parameter]] = {}
    for part, module, parameter in _trained(embedder, objective):
        decays = parameter.dim() > 1 and getattr(module, "weight_decay", True)
        key = (part, getattr(module, "lr_multiplier", 1.0), weight_decay if decays else 0.0)
        groups.setdefault(key, []).append(parameter)
    return [
        {"params": parameters, "part": part, "multiplier": multiplier, "weight_decay": decay}
        for (part, multiplier, decay), parameters in groups.items()
    ]


def _trained(embedder: nn.Module, objective: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Parameter]]:
    """Part ("backbone" or "head"), owner and parameter of everything that requires a gradient, each once."""
    seen: set[int] = set()
    for root, prefix in ((embedder, ""), (objective, "objective.")):
        for name, module in root.named_modules():
            for parameter in module.parameters(recurse=False):
                if parameter.requires_grad and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield "backbone" if f"{prefix}{name}".startswith("backbone") else "head", module, parameter


def create_optimizer(config: TrainConfig, embedder: nn.Module, objective: nn.Module) -> torch.optim.Optimizer:
    """Adam with L2 in the gradient, or AdamW."""
    groups = parameter_groups(embedder, objective, config.weight_decay)
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, lr=config.lr, betas=config.betas)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float, warming_up: bool) -> None:
    """The rate of every group: its multiplier times `lr`, and 0 for the backbone while the head warms up."""
    for group in optimizer.param_groups:
        group["lr"] = 0.0 if warming_up and group["part"] == "backbone" else lr * group["multiplier"]
