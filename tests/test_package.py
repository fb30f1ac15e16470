"""What users rely on: public names, README code, and that optional packages stay optional."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sumpool

ROOT = Path(__file__).parents[1]
PUBLIC = {"Embedder", "GSP", "Pooled", "create_pooling"}
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_public_names() -> None:
    assert set(sumpool.__all__) == PUBLIC
    assert all(getattr(sumpool, name) is not None for name in PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'gsp'"):
        _ = sumpool.gsp


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_readme_code_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})


def test_readme_tree_names_every_folder() -> None:
    folders = {path.name for path in (ROOT / "src" / "sumpool").iterdir() if (path / "__init__.py").exists()}
    assert [name for name in sorted(folders) if f" {name}/" not in README] == []


def test_import_works_with_the_core_dependencies_alone() -> None:
    """Every module imports when only what pyproject.toml requires is there."""
    code = (
        "import importlib.abc, pkgutil, sys\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in OPTIONAL: raise ImportError(f'{name} is optional')\n"
        "OPTIONAL = set('matplotlib scipy sklearn faiss timm transformers onnx onnxruntime onnxscript pyarrow "
        "huggingface_hub pytorch_metric_learning torchvision tensorboard optuna ot'.split())\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import sumpool\n"
        "for module in pkgutil.walk_packages(sumpool.__path__, 'sumpool.'): __import__(module.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nothing_unpickles() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            keywords = {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert name.split(".")[0] not in {"pickle", "cloudpickle", "joblib", "shelve", "dill"}, path
            assert name != "torch.load" or keywords.get("weights_only") == "True", path
            assert name != "np.load" or keywords.get("allow_pickle") == "False", path
