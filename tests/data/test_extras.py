"""Without an optional package the error says what to install."""

import sys
from pathlib import Path

import pytest

from sumpool.data import DATASETS
from sumpool.data.sets import fonts
from sumpool.errors import InputError


@pytest.mark.parametrize(
    ("name", "module", "needs_root"),
    [("digits", "sklearn.datasets", False), ("cars", "scipy.io", True), ("manifest", "pyarrow", True)],
)
def test_missing_extras_are_named(
    name: str, module: str, needs_root: bool, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "list.parquet").touch()
    places = {"cars": root, "manifest": tmp_path / "list.parquet"}
    with pytest.raises(InputError, match=r"pip install 'sumpool\[data\]'"):
        DATASETS[name](**({"root": places[name]} if needs_root else {}))


def test_missing_fonts_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"matplotlib's fonts: pip install 'sumpool\[data\]'"):
        fonts.faces.__wrapped__()
