"""Index folders: round trips, crashes while writing, damage."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sumpool.errors import InputError
from sumpool.retrieval import Index, storage

from .truth import random_embeddings


def make(count: int = 300, **settings: object) -> Index:
    return Index(random_embeddings(count, 8), [{"path": f"ü{i}.jpg"} for i in range(count)], model="m", **settings)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("backend", ["exact", "hnsw", "ivfpq"])
def test_round_trip(backend: str, tmp_path: Path) -> None:
    index = make(backend=backend, about={"folder": "x"})
    index.save(tmp_path / "deep" / "index")
    loaded = Index.load(tmp_path / "deep" / "index", model="m")
    assert (loaded.records, loaded.model, loaded.about) == (index.records, "m", {"folder": "x"})
    assert isinstance(loaded.embeddings, np.memmap)
    queries = random_embeddings(5, 8, seed=3)
    assert torch.equal(loaded.search(queries).items, index.search(queries).items)
    assert torch.equal(loaded.search(queries).scores, index.search(queries).scores)
    loaded.add(queries, [{"path": "new"}] * 5)
    loaded.remove([3])
    loaded.save(tmp_path / "deep" / "index")
    again = Index.load(tmp_path / "deep" / "index")
    assert torch.equal(again.search(queries, k=1).items[:, 0], torch.arange(299, 304))
    assert len(files(tmp_path / "deep" / "index")) == (3 if backend == "exact" else 4)


def test_half_precision(tmp_path: Path) -> None:
    index = make()
    index.save(tmp_path / "index", half=True)
    loaded = Index.load(tmp_path / "index")
    assert loaded.embeddings.dtype == np.float16
    assert torch.as_tensor(np.array(loaded.embeddings)).float() == pytest.approx(index.embeddings, abs=2e-3)
    assert loaded.search(index.embeddings[:9], k=1).items.flatten().tolist() == list(range(9))


def test_other_precisions(tmp_path: Path) -> None:
    index = Index(random_embeddings(9, 8).bfloat16(), [{}] * 9)
    index.save(tmp_path)
    assert torch.equal(torch.from_numpy(np.array(Index.load(tmp_path).embeddings)), index.embeddings.float())


@pytest.mark.parametrize(("factor", "half"), [(1e5, True), (1e60, False)])
def test_what_does_not_fit_replaces_nothing(factor: float, half: bool, tmp_path: Path) -> None:
    make(3).save(tmp_path)
    before = files(tmp_path)
    large = Index(factor * (1 + random_embeddings(9, 8).abs().double()), [{}] * 9, backend="hnsw")
    with pytest.raises(
        InputError, match="float16, got .* save without half" if half else "float32, got .* scale them$"
    ):
        large.save(tmp_path, half)
    assert files(tmp_path) == before
    assert len(Index.load(tmp_path)) == 3


STEPS = ["_write:1", "_write:2", "_write:3", "_sync:1", "replace:1", "_sync:2", "unlink:1"]


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_leaves_a_whole_index(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = make(20), make(30)
    old.save(tmp_path)
    name, nth = step.split(":")
    owner = Path if name in ("replace", "unlink") else storage
    original, calls = getattr(owner, name), []

    def crash(*args: object) -> object:
        calls.append(args)
        if len(calls) == int(nth):
            if name == "_write":
                args[0].write_bytes(b"half a fi")
            raise KeyboardInterrupt
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crash)
        with pytest.raises(KeyboardInterrupt):
            new.save(tmp_path)
    found = len(Index.load(tmp_path))
    assert found == (30 if step in ("_sync:2", "unlink:1") else 20)
    new.save(tmp_path)
    assert len(Index.load(tmp_path)) == 30
    assert len(files(tmp_path)) == 3


def test_a_killed_process_leaves_the_old_index(tmp_path: Path) -> None:
    """SIGKILL in the middle of writing the embeddings, when no handler or `finally` runs."""
    make(20).save(tmp_path)
    script = f"""
import os, signal, sys
import numpy as np, torch
from sumpool.retrieval import Index, storage
def half(file, array, allow_pickle):
    file.write(array.tobytes()[: array.nbytes // 2])
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
storage.np.save = half
Index(torch.ones(5000, 8), [{{"path": "x"}}] * 5000, model="m").save({str(tmp_path)!r})
"""
    done = subprocess.run([sys.executable, "-c", script], env=dict(os.environ), check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(files(tmp_path)) == 4
    assert len(Index.load(tmp_path)) == 20


def test_foreign_folders_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="neither empty nor an index"):
        make(3).save(tmp_path)
    assert files(tmp_path) == {"thesis.txt"}
    for place in (tmp_path / "thesis.txt", tmp_path / "thesis.txt" / "index"):
        with pytest.raises(InputError, match=r"thesis\.txt is a file"):
            make(3).save(place)


def test_damage_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no index\.json"):
        Index.load(tmp_path)
    make(20).save(tmp_path)
    manifest = tmp_path / "index.json"
    good = json.loads(manifest.read_text())
    with pytest.raises(InputError, match="model m and the query by n"):
        Index.load(tmp_path, model="n")
    for bad, message in {
        '{"format": 1': "damaged",
        "[]": "damaged",
        json.dumps(good | {"format": 99}): "another version",
        json.dumps(good | {"colour": "red"}): "damaged .*model, distance, backend, about, colour",
        json.dumps(good | {"about": "x"}): "damaged",
        json.dumps(good | {"files": {"embeddings": "../../secret.npy", "records": "x"}}): "foreign files",
        json.dumps(good | {"files": {"embeddings": good["files"]["embeddings"]}}): "damaged",
    }.items():
        manifest.write_text(bad)
        with pytest.raises(InputError, match=message):
            Index.load(tmp_path)
    manifest.write_text(json.dumps(good))
    (tmp_path / good["files"]["records"]).write_text("[{}]")
    with pytest.raises(InputError, match="1 records do not fit"):
        Index.load(tmp_path)


def test_a_damaged_structure_is_reported(tmp_path: Path) -> None:
    make(20, backend="hnsw").save(tmp_path)
    structure = next(tmp_path.glob("structure-*"))
    structure.write_bytes(structure.read_bytes()[:100])
    with pytest.raises(InputError, match="structure of the index is damaged"):
        Index.load(tmp_path)
