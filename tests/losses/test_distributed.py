"""Two processes with half a batch each train as one process with the whole batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sumpool.losses import gather

SCRIPT = Path(__file__).with_name("distributed_run.py")


def test_one_process_gathers_nothing() -> None:
    rows = torch.randn(3, 2)
    assert gather(rows) is rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process alone, and each of a pair, trained."""
    folder = tmp_path_factory.mktemp("distributed")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen([sys.executable, str(SCRIPT), rank, world, str(folder)], env=environment)
        for rank, world in [("0", "1"), ("0", "2"), ("1", "2")]
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0, 0]
    return folder


@pytest.mark.parametrize("chain", range(7), ids=lambda number: f"chain {number} of distributed_run.py")
def test_losses_gradients_parameters_and_memories_are_equal(chain: int, folder: Path) -> None:
    alone, first, second = (
        load_file(folder / f"{chain}_{which}.safetensors") for which in ("0_of_1", "0_of_2", "1_of_2")
    )
    assert len(alone) > 10
    torch.testing.assert_close(first, alone, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(second, alone, rtol=1e-10, atol=1e-12)
