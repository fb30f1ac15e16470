"""Every study runs tiny, with the code of the large ones, and leaves the files it promises."""

import inspect
import json
import os
import re
from pathlib import Path

import pytest

from sumpool.studies import STUDIES
from sumpool.studies.base import Call, run_study

# What lies only in the folder of published datasets.
NEEDS_DATA: dict[str, str] = {"cifar-collage": "cifar100.npz"}
# What shows a construction, or checks a bound, and trains no two methods to be compared.
NO_COMPARISON = ("toy", "gap-analysis")


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_at_smoke_scale_and_leaves_numbers_figures_and_a_page(name: str, tmp_path: Path) -> None:
    if name in NEEDS_DATA and not (Path(os.environ.get("SUMPOOL_DATA", "")) / NEEDS_DATA[name]).is_file():
        pytest.skip(f"set SUMPOOL_DATA to a folder with {NEEDS_DATA[name]}")
    outcome = run_study(STUDIES[name], Call("smoke", tmp_path))
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["scale"] == "smoke"
    assert results["verdict"] == outcome.verdict
    if name not in NO_COMPARISON:
        for found in results["difference"].values():
            assert found["ci95"][0] <= found["mean"] <= found["ci95"][1]
    page = (tmp_path / "README.md").read_text()
    assert outcome.reason in page
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page)
    assert pictures
    assert all((tmp_path / picture).stat().st_size > 1000 for picture in pictures)


@pytest.mark.parametrize("name", STUDIES)
def test_the_head_of_a_study_says_command_claim_setting_and_measured_result(name: str) -> None:
    head = inspect.getdoc(inspect.getmodule(STUDIES[name])) or ""
    for part in (f"Command: `sumpool study {name}", "Claim:", "Setting:", "Measured:"):
        assert part in head, f"the head of {name} lacks {part}"
