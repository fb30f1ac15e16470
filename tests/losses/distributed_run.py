"""Train a small model for a few steps as one of WORLD processes: `distributed_run.py RANK WORLD FOLDER`."""

import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sumpool.losses import create_objective

CHAINS = {
    "triplet": {},
    "n_pair": {},
    "lifted_structure": {},
    "libc": {},
    "xbm/original_contrastive": {"xbm": {"batches": 2, "start": 1}},
    "far_push/proxy_anchor": {"far_push": {"subset": 4}},
    "zsr/nearest_push/ccp/xbm/multi_similarity": {"xbm": {"batches": 2, "start": 0}},
}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attend = nn.Linear(6, 8), nn.Linear(6, 5)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.embed(inputs), self.attend(inputs).softmax(1)


def train(chain: str, rank: int, world: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    settings = CHAINS[chain]
    model = Model().double()
    objective = create_objective(chain, classes=["a", "b", "c", "d", "e", "f"], dim=8, settings=settings).double()
    wrapped = DistributedDataParallel(model, find_unused_parameters=True) if world > 1 else model
    optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.1)
    history = []
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(12, 6, generator=generator, dtype=torch.float64)
        labels = ["abcdef"[int(label)] for label in torch.randint(6, (12,), generator=generator)]
        mine = slice(0, 12) if world == 1 else (slice(0, 7), slice(7, 12))[rank]  # uneven on purpose
        embeddings, attributes = wrapped(inputs[mine])
        total, _ = objective(embeddings, labels[mine], attributes)
        optimizer.zero_grad()
        total.backward()
        history += [total.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        optimizer.step()
    # Parameters that no term uses have no gradient in one process and zeros in several.
    state = {f"{number}": value for number, value in enumerate(history) if value.abs().sum() > 0}
    return state | {f"model.{k}": v for k, v in model.state_dict().items()} | objective.state_dict()


def main() -> None:
    warnings.simplefilter("error")
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    for number, chain in enumerate(CHAINS):
        save_file(train(chain, rank, world), folder / f"{number}_{rank}_of_{world}.safetensors")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
