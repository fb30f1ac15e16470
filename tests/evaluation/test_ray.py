"""A protocol on a real Ray cluster of two workers, one of which dies in the middle."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sumpool.cli import main
from sumpool.errors import InputError
from sumpool.evaluation.ray_engine import run_on_ray
from sumpool.training.config import TrainConfig

TINY = [
    *("protocol", "fair", "--method", "C2+GSP", "--repeats", "1", "--folds", "2", "--dataset", "glyphs"),
    *("--data_settings.per_class", "4", "--data_settings.classes", "20", "--backbone", "tiny", "--weights", "null"),
    *("--augment", "none", "--dim", "8", "--lr", "1e-3", "--device", "cpu", "--classes-per-batch", "2"),
    *("--images-per-class", "2", "--steps", "300", "--validate-every", "10", "--patience", "99"),
    *("--pooling_settings.memory", "8", "--pooling_settings.prototypes", "4"),
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that does no work and two workers with one CPU each."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    with tempfile.TemporaryDirectory(prefix="s", ignore_cleanup_errors=True) as place:  # short: sockets lie in it
        monkeypatch.setenv("RAY_TMPDIR", place)
        (Path(place) / "ray").mkdir()
        cluster = cluster_utils.Cluster()
        try:
            cluster.add_node(num_cpus=0, include_dashboard=False)
            for _ in range(2):
                cluster.add_node(num_cpus=1)
            yield cluster
        finally:
            cluster.shutdown()


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]", seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    direct = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*direct, *(grandchild for child in direct for grandchild in descendants(child))]


def pull_the_plug(node: Any) -> list[int]:
    """Kill a node's processes; those that trained are returned."""
    (raylet,) = node.all_processes["raylet"]
    workers = descendants(raylet.process.pid)
    for pid in (raylet.process.pid, *workers):
        os.kill(pid, signal.SIGKILL)
    return workers


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes as on Linux")
def test_a_training_survives_the_death_of_its_machine(cluster: Any, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    runs = [folder / "C2+GSP" / name for name in ("f0r0", "f1r0")]
    command = [sys.executable, "-m", "sumpool", *TINY, "--engine", "ray", "--address", cluster.address]
    driver = subprocess.Popen(
        [*command, "--out", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: all((run / "last.safetensors").exists() for run in runs), driver)
    # One training on each machine, both past their first checkpoint: whichever machine dies, one of them loses it.
    assert not list(folder.rglob("test.safetensors"))
    begun = [(run / "metrics.jsonl").read_text().splitlines()[0] for run in runs]
    assert pull_the_plug(cluster.worker_nodes.copy().pop())
    shown, said = driver.communicate(timeout=300)
    assert driver.returncode == 0, said
    assert "2 trainings to do, 2 at a time on the 3 machines of the cluster (1 CPU each)" in said
    assert "2 of 2 trainings done" in said
    assert "fair protocol on glyphs" in shown
    # Their first validations, with their durations, are those from before: nobody began anew.
    assert [(run / "metrics.jsonl").read_text().splitlines()[0] for run in runs] == begun

    assert main([*TINY, "--out", str(tmp_path / "here")]) == 0
    table, expected = (json.loads((place / "results.json").read_text()) for place in (folder, tmp_path / "here"))
    assert table == expected


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(InputError, match=f"no Ray cluster at 127.0.0.1:{port}, start one with `ray start`"):
        run_on_ray([(TrainConfig("toy"), tmp_path)], address=f"127.0.0.1:{port}")


def test_ray_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'sumpool\[ray\]'"):
        run_on_ray([(TrainConfig("toy"), tmp_path)])
    run_on_ray([])  # nothing to do needs no cluster
