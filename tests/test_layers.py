"""Imports only point down, and parts of one layer do not import each other."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "sumpool"
# Highest first. Parts on one line are of one layer.
LAYERS = [
    {"__main__"},
    {"cli", "app"},
    {"studies"},
    {"evaluation"},
    {"training"},
    {"embedder", "retrieval", "explain"},
    {"data", "backbones", "pooling", "losses"},
    {"ops"},
    {"types"},
    {"registry", "files"},
    {"errors"},
]
HEIGHT = {part: -level for level, parts in enumerate(LAYERS) for part in parts}


def part_of(module: str) -> str | None:
    """The part of the package a dotted name belongs to; None outside the package and for the package's own root."""
    pieces = module.split(".")
    return pieces[1] if pieces[0] == "sumpool" and len(pieces) > 1 else None


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


FILES = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert own in HEIGHT, f"{own} is in no layer: add it to LAYERS and docs/architecture.md"
    for module in imports(path):
        other = part_of(module)
        if other in HEIGHT and other != own:
            assert HEIGHT[other] < HEIGHT[own], f"{own} may not import {other}"


def test_the_rule_sees_a_violation(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("from sumpool import pooling\nimport sumpool.losses.contrastive\n")
    assert {part_of(name) for name in imports(bad)} == {None, "pooling", "losses"}
