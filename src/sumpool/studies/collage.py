"""What the two collage studies share: every pooling with C2 and PNCA on one dataset, as numbers, figures and a verdict.

An image is a 2×2 collage: one tile shows its class, three show a background that all classes share. A pooling that
leaves the background out scores like GAP on the class tile alone ("distilled").
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from safetensors.torch import save

from sumpool.data import load_dataset
from sumpool.data.balanced import rows_of_classes
from sumpool.embedder import Embedder
from sumpool.evaluation.engines import Trial, run_trials
from sumpool.evaluation.statistics import compare
from sumpool.evaluation.trial import load_embedded
from sumpool.files import write_atomically
from sumpool.studies.base import Call, Outcome, Verdict, markdown_table
from sumpool.studies.collage_figures import draw_scores, draw_weights
from sumpool.studies.comparison import Runs, per_query, shown, summarise
from sumpool.training.config import TrainConfig, to_yaml
from sumpool.training.run import BEST, CONFIG
from sumpool.training.start import start

LOSSES = {"C2": "contrastive", "PNCA": "proxy_nca"}
MAIN = ("GAP", "GSP", "GSP+L_ZS", "distilled GAP")
CLAIMS = {"GSP − GAP": ("GSP", "GAP"), "L_ZS": ("GSP+L_ZS", "GSP"), "GSP+L_ZS − GAP": ("GSP+L_ZS", "GAP")}


class Row(NamedTuple):
    """One row of the table."""

    pooling: str
    settings: Mapping[str, Any] = {}
    dim: int = 128
    zero_shot: bool = False


@dataclass(frozen=True)
class Plan:
    """The trainings of a study.

    Args:
        base: a training; every row of the table puts its pooling and its loss there
        distilled: what changes in `base` for images of the class tile alone
        rows: the poolings by the name they have in the table
        weight: λ of L_ZS
        loss_settings: keyword arguments by loss
        seeds: trainings of each main row
        other_seeds: trainings of each other row
        work: folder for the run folders
        losses: columns of the table
    """

    base: TrainConfig
    distilled: Mapping[str, Any]
    rows: Mapping[str, Row]
    weight: float
    loss_settings: Mapping[str, Mapping[str, Any]]
    seeds: int
    other_seeds: int
    work: Path
    losses: Sequence[str] = tuple(LOSSES)


def every_pooling(gsp: Mapping[str, Any]) -> dict[str, Row]:
    """All rows, those with GSP at the given prototypes m, mass μ and sharpness ε.

    Poolings that concatenate one vector per prototype have 128 and, as in the text, 8192 dimensions.
    """
    unselective = {name: value for name, value in gsp.items() if name != "mass"}
    return {
        "GAP": Row("gap"),
        "GMP": Row("gmp"),
        "GAP+GMP": Row("gap+gmp"),
        "GeM": Row("gem"),
        "GeMax": Row("gemax"),
        "LSE": Row("lse"),
        "attention": Row("attention"),
        "CBAM": Row("cbam"),
        "CroW": Row("crow"),
        "DeLF": Row("delf"),
        "GSoP": Row("gsop"),
        "OTP 8×16": Row("otp", {"prototypes": 8}),
        "OTP 64×128": Row("otp", {"prototypes": 64}, dim=8192),
        "SOLAR": Row("solar"),
        "T-SMK": Row("tsmk"),
        "NetVLAD 8×16": Row("netvlad", {"prototypes": 8}),
        "NetVLAD 64×128": Row("netvlad", {"prototypes": 64}, dim=8192),
        "WELDON": Row("weldon"),
        "GAP+L_ZS": Row("gap_attributes", unselective, zero_shot=True),
        "GMP+GSP": Row("gmp+gsp", gsp),
        "GeM+GSP": Row("gem+gsp", gsp),
        "GSP": Row("gsp", gsp),
        "GSP+L_ZS": Row("gsp", gsp, zero_shot=True),
        "distilled GAP": Row("gap"),
    }


def main_rows(gsp: Mapping[str, Any]) -> dict[str, Row]:
    """The rows that the claim is about."""
    return {name: row for name, row in every_pooling(gsp).items() if name in MAIN}


def training(plan: Plan, loss: str, name: str, row: Row, seed: int) -> TrainConfig:
    """The configuration of one training."""
    settings = {"zsr": {"weight": plan.weight}} if row.zero_shot else {}
    settings[LOSSES[loss]] = dict(plan.loss_settings.get(loss, {}))
    return replace(
        plan.base,
        **(plan.distilled if name == "distilled GAP" else {}),
        pooling=row.pooling,
        pooling_settings=dict(row.settings),
        dim=row.dim,
        loss="/".join(settings),
        loss_settings=settings,
        seed=seed,
    )


def run_folder(work: Path, name: str, config: TrainConfig) -> Path:
    """Where a training runs; the digest of its configuration keeps an earlier, different one from being taken for it.

    >>> run_folder(Path("out"), "C2 GSP+L_ZS", TrainConfig("toy")).name[:-8]
    'c2-gsp-l-zs-0-'
    """
    digest = hashlib.sha256(to_yaml(config).encode()).hexdigest()[:8]
    return work / f"{re.sub(r'[^a-z0-9×]+', '-', name.lower())}-{config.seed}-{digest}"


def pretrained(config: TrainConfig, work: Path) -> Path:
    """Weights file of a backbone, trained in a folder of its own among the trainings of a study."""
    return trained_backbone(config, run_folder(work, "pretraining", config))


def trained_backbone(config: TrainConfig, folder: Path) -> Path:
    """Weights file of a backbone trained by this very loop; trained, continued or taken as it is."""
    path = folder / "backbone.safetensors"
    if not path.exists():
        run = start(folder, config, resume=(folder / CONFIG).exists())
        run.fit()
        if run.interrupted:
            raise KeyboardInterrupt
        write_atomically(path, save(Embedder.load(folder / BEST).backbone.state_dict()))
    return path


def trials(plan: Plan) -> dict[str, list[Trial]]:
    """The trainings of every row with either loss, such as "C2 GSP"."""
    found = {}
    for loss, (name, row) in product(plan.losses, plan.rows.items()):
        seeds = plan.seeds if name in MAIN else plan.other_seeds
        configs = [training(plan, loss, name, row, seed) for seed in range(seeds)]
        found[f"{loss} {name}"] = [(config, run_folder(plan.work, f"{loss} {name}", config)) for config in configs]
    return found


def measure(plan: Plan, jobs: int) -> tuple[dict[str, Any], dict[str, list[Trial]]]:
    """Train every row; scores by row, C2's GSP − GAP as "difference", and "differences" of both losses."""
    table = trials(plan)
    run_trials([trial for some in table.values() for trial in some], jobs)
    runs = {name: [load_embedded(folder) for _, folder in some] for name, some in table.items()}
    results = summarise(runs, "C2 GAP", "C2 GSP")
    results["differences"] = {
        f"{loss} {claim}": difference(runs, f"{loss} {candidate}", f"{loss} {baseline}")
        for loss, (claim, (candidate, baseline)) in product(plan.losses, CLAIMS.items())
    }
    return results, table


def difference(runs: Runs, candidate: str, baseline: str) -> dict[str, Any]:
    """MAP@R of one method minus another's, in the form of results."""
    labels = runs[baseline][0].labels.numpy()
    a, b = (per_query(runs[name], ("map@r",))["map@r"] for name in (candidate, baseline))
    return {"map@r": compare(a, b, labels).difference.json()}


def judge(differences: Mapping[str, Any], target: float) -> tuple[Verdict, str]:
    """The verdict about C2: GSP surely above GAP, by at least `target`, and L_ZS surely adding; or only the first."""
    gain, zero_shot = (differences[f"C2 {claim}"]["map@r"] for claim in ("GSP − GAP", "L_ZS"))
    above, adds = gain["ci95"][0] > 0, zero_shot["ci95"][0] > 0
    verdict: Verdict = "partly reproduced" if above else "not reproduced"
    if above and adds and gain["mean"] >= target:
        verdict = "reproduced"
    wanted = f"at least {100 * target:g}" if target else "more than 0"
    return verdict, (
        f"With C2, GSP − GAP is {shown(gain)} points of MAP@R (wanted: {wanted}), "
        f"and L_ZS adds {shown(zero_shot)} points (wanted: more than 0)."
    )


def table(results: Mapping[str, Any], plan: Plan, trained: Mapping[str, Sequence[Trial]]) -> str:
    """MAP@R and P@1 of every row with every loss, and the differences."""
    scores = [
        {
            "pooling": name,
            **{f"{loss}: MAP@R": shown(results[f"{loss} {name}"]["map@r"]) for loss in plan.losses},
            **{f"{loss}: P@1": f"{100 * results[f'{loss} {name}']['p@1']['mean']:.1f}" for loss in plan.losses},
            "seeds": len(trained[f"C2 {name}"]),
        }
        for name in plan.rows
    ]
    differences = [
        {"difference": name, "points of MAP@R": shown(values["map@r"])}
        for name, values in results["differences"].items()
    ]
    return f"{markdown_table(scores)}\n\n{markdown_table(differences)}"


def report(call: Call, plan: Plan, target: float) -> Outcome:
    """Run a study: numbers, figures, page and verdict."""
    results, trained = measure(plan, call.jobs)
    draw_scores(results, plan.losses, list(plan.rows), call.out / "scores.png")
    folders = {name: trained[f"C2 {name}"][0][1] / BEST for name in ("GAP", "GSP", "GSP+L_ZS")}
    draw_weights(folders, examples(plan.base), call.out / "weights.png")
    verdict, reason = judge(results["differences"], target)
    body = f"""![MAP@R of every pooling with C2 and PNCA](scores.png)

Dots are means, bars 95 % intervals over test classes and, where there are several, seeds.

{table(results, plan, trained)}

![collages of unseen classes and the pooling weights on them](weights.png)

Test collages, and under them the weights of GAP (equal), GSP and GSP with L_ZS, trained with C2."""
    return Outcome(results, body, verdict, reason)


def examples(config: TrainConfig, count: int = 8) -> list[Image.Image]:
    """Test collages of different classes."""
    test = load_dataset(config.dataset, config.data_root, **config.data_settings).split("test")
    firsts = [rows[0] for rows in rows_of_classes(test.labels)]
    return [test.image(row) for row in firsts[:: max(len(firsts) // count, 1)][:count]]
