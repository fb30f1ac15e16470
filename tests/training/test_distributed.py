"""Two processes with half of every batch train as one with all of it; one of them writes, and they stop as one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sumpool.data import load_dataset
from sumpool.errors import InputError
from sumpool.losses import LOSSES
from sumpool.training import setup
from sumpool.training.config import TrainConfig
from sumpool.training.loop import Training
from sumpool.training.processes import Processes
from sumpool.training.run import Run
from sumpool.training.start import start as start_run

SCRIPT = Path(__file__).with_name("distributed_run.py")
MORE = ("xbm", "zsr-gsp", "chunks", "ccp", "ccp-random", "everything")


def start(rank: int, world: int, port: int, command: list[str]) -> subprocess.Popen[str]:
    """One process as `torchrun` would start it."""
    place = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment = os.environ | place | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *command], env=environment, **pipes)  # type: ignore[call-overload, no-any-return]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def ended(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What the processes said; none may have failed."""
    try:
        said = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return [out for out, _ in said]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process alone, and each of a pair, trained."""
    folder, port = tmp_path_factory.mktemp("distributed"), free_port()
    places = {"alone": (0, 1), "first": (0, 2), "second": (1, 2)}
    for name in places:
        (folder / name).mkdir()
    ended([start(*place, port, [str(SCRIPT), str(folder / name)]) for name, place in places.items()])
    return folder


def trained(folder: Path, process: str, run: str) -> dict[str, Tensor]:
    state = load_file(folder / process / f"{run}.safetensors")
    if run == "chunks":  # a memory's rows come in the order of the chunks, which changes nothing
        state |= {name: value[value[:, 0].argsort()] for name, value in state.items() if name.endswith("pooling.rows")}
    return state


@pytest.mark.parametrize("run", [*LOSSES, *MORE])
def test_weights_are_those_of_one_process_with_the_whole_batch(run: str, folder: Path) -> None:
    alone = trained(folder, "alone", run)
    for process in ("first", "second"):
        torch.testing.assert_close(trained(folder, process, run), alone, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("run", [name for name in MORE if name.startswith(("ccp", "every"))])
def test_the_problems_of_ccp_alternated(run: str, folder: Path) -> None:
    assert int(trained(folder, "alone", run)["problem"]) == 4


def test_proxies_and_weights_are_the_same_on_both_to_the_bit(folder: Path) -> None:
    first, second = (trained(folder, process, "everything") for process in ("first", "second"))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_only_the_first_process_writes(folder: Path) -> None:
    def runs(process: str) -> set[str]:
        return {path.name for path in (folder / process).iterdir() if path.is_dir()}

    assert runs("first") == runs("alone") == {*LOSSES, *MORE}
    assert runs("second") == set()


MODEL = ["toy", "--backbone", "tiny", "--pooling", "gap", "--dim", "4", "--loss", "ccp/contrastive"]
BATCH = ["--augment", "shift", "--classes-per-batch", "2", "--images-per-class", "2"]


def commands(port: int, *arguments: str) -> list[subprocess.Popen[str]]:
    command = ["-m", "sumpool", "train", *arguments]
    return [start(rank, 2, port, command) for rank in (0, 1)]


def test_a_request_to_one_process_stops_both_after_the_same_step(tmp_path: Path) -> None:
    run = tmp_path / "run"
    steps = ["--steps", "100000", "--patience", "100000", "--validate-every", "5"]
    pair = commands(free_port(), *MODEL, *BATCH, *steps, "--out", str(run))
    deadline = time.monotonic() + 300
    while not (run / "last.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    pair[1].send_signal(signal.SIGTERM)
    first, second = ended(pair)
    assert "stopped after step" in first
    assert second == ""
    assert all(json.loads(line)["problem"] >= 1 for line in (run / "metrics.jsonl").read_text().splitlines())


def test_a_process_that_does_not_write_accepts_the_folder_the_first_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text("")
    second = Processes(1, 2, torch.device("cpu"))
    monkeypatch.setattr("sumpool.training.start.join", lambda device: second)
    monkeypatch.setattr("sumpool.training.start.Training", lambda config, run, processes: processes)
    assert start_run(tmp_path, TrainConfig("toy")) is second


def join_batchnorms(count: int, device: str = "cpu", **settings: Any) -> list[nn.Module]:
    config = TrainConfig("toy", backbone="tiny", pooling="gap", dim=4, loss="triplet", **settings)
    embedder = setup.create_embedder(config, load_dataset("toy", per_class=2))
    setup.join_batchnorms(config, embedder, Processes(0, count, torch.device(device)))
    return [module for module in embedder.train().modules() if isinstance(module, _BatchNorm)]


def test_trained_batchnorms_see_the_whole_batch() -> None:
    joined = join_batchnorms(2, "cuda", freeze_batchnorm=False, freeze=1)
    assert [type(norm) for norm in joined] == [nn.SyncBatchNorm] * 3
    assert [norm.training for norm in joined] == [False, True, True]
    for norm in (*join_batchnorms(2), *join_batchnorms(1, freeze_batchnorm=False), *join_batchnorms(1, chunk=2)):
        assert type(norm) is nn.BatchNorm2d
    for count, chunk in ((2, 0), (1, 4)):
        with pytest.raises(InputError, match="set freeze_batchnorm"):
            join_batchnorms(count, freeze_batchnorm=False, chunk=chunk)


def alone_of_two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **settings: Any) -> Training:
    """A training that believes what `anyone` and `agreed` are made to say of another process."""
    monkeypatch.setattr("sumpool.training.loop.anyone", lambda flag, device: True)
    config = TrainConfig("toy", backbone="tiny", pooling="gap", dim=4, loss="triplet", classes_per_batch=2, **settings)
    return Training(config, Run(tmp_path / "run", writes=False), Processes(0, 1, torch.device("cpu")))


def test_a_checkpoint_that_one_process_does_not_see_stops_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"not every process sees .*last\.safetensors: resuming needs a shared folder"):
        alone_of_two(monkeypatch, tmp_path).resume()


def test_a_cache_that_one_process_does_not_see_stops_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sumpool.training.features.anyone", lambda flag, device: True)
    with pytest.raises(InputError, match=r"not every process sees .*cache: a cache needs a shared folder"):
        alone_of_two(monkeypatch, tmp_path, freeze="all", cache=str(tmp_path / "cache"))


def test_processes_at_different_batches_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    next(alone_of_two(monkeypatch, tmp_path).batches())
    with pytest.raises(InputError, match="after step 0 a process could read no image of its share of a batch"):
        next(alone_of_two(monkeypatch, tmp_path, bad_images="skip").batches())
    monkeypatch.undo()
    training = alone_of_two(monkeypatch, tmp_path, bad_images="skip")
    monkeypatch.setattr("sumpool.training.loop.anyone", lambda flag, device: flag)
    next(training.batches())
    monkeypatch.setattr("sumpool.training.loop.agreed", lambda place, device: place + 1)
    with pytest.raises(InputError, match="could read no image"):
        next(training.batches())
