"""Glyph collage: which poolings leave out a background that all classes share, in minutes and without a download.

Command: `sumpool study glyph-collage --scale cpu --out docs/studies/glyph-collage`.

Claim: the text has this experiment with CIFAR images (`cifar-collage`): GSP learns to leave out what all classes share,
GAP cannot, and the zero-shot loss L_ZS adds to it.

Setting: 56-px collages of one letter (the class) and three symbols; letters and symbols of training, validation and
test are disjoint. At scale `cpu`: 200 letters, 20 collages of each, a network of four convolutions that has learned
single training letters and symbols for 400 steps, then 300 steps of 16 × 4 images, validated every 100; m 64, μ 0.2,
ε 10, λ 0.5; 3 seeds for GAP, GSP and distilled GAP, one for the others.

Measured: GSP is 7.0 [4.6, 9.5] points of MAP@R above GAP with C2 and 6.4 [4.8, 8.1] with PNCA; L_ZS adds nothing (−0.5
[−3.1, 2.0] and 0.1 [−1.5, 1.7]). GSP is above most poolings and not the best: with one seed, DeLF's learned attention,
GeM over what GSP keeps, and, with C2, NetVLAD of 8192 dimensions score higher. All are far from the letter alone (46).
The time below is the sum of the trainings' times, which ran on a busy machine.
"""

from typing import Any

from sumpool.studies.base import Call, Outcome
from sumpool.studies.collage import Plan, every_pooling, main_rows, pretrained, report
from sumpool.training.config import TrainConfig

GSP = {"prototypes": 64, "mass": 0.2, "sharpness": 10.0}
PROXIES = {"PNCA": {"lr_multiplier": 10.0}}  # 100, for a learning rate of 1e-5, is too fast at 1e-3


def glyph_collage(call: Call) -> Outcome:
    """Glyph collage: every pooling with C2 and PNCA on letters among shared symbols."""
    return report(call, plan(call), target=0.0)


def plan(call: Call) -> Plan:
    """The trainings."""
    data: dict[str, Any] = call.pick(
        {"per_class": 4, "classes": 40}, {"per_class": 20, "classes": 200}, {"per_class": 100}
    )
    common: dict[str, Any] = {
        "backbone": "conv4",
        "backbone_settings": {"channels": 64},
        "precision": "bf16",
        "augment": "shift",
        "flip": 0.0,
        "device": "cpu",
    }
    weights = pretrained(pretraining(call, data, common), call.work)
    base = TrainConfig(
        "glyph-collage",
        data_settings=data,
        weights=str(weights),
        lr=1e-3,
        classes_per_batch=16,
        images_per_class=4,
        steps=call.pick(2, 300, 4000),
        validate_every=call.pick(2, 100, 100),
        patience=100,
        **common,
    )
    rows = call.pick(main_rows, every_pooling, every_pooling)(GSP)
    return Plan(base, {"dataset": "glyphs"}, rows, 0.5, PROXIES, call.pick(1, 3, 5), call.pick(1, 1, 5), call.work)


def pretraining(call: Call, data: dict[str, Any], common: dict[str, Any]) -> TrainConfig:
    """Classification of single training letters and symbols."""
    return TrainConfig(
        "glyphs",
        data_settings={**data, "background": True},
        freeze_batchnorm=False,
        pooling="gap",
        loss="normalized_softmax",
        loss_settings={"normalized_softmax": {"lr_multiplier": 10.0, "temperature": 0.1}},
        lr=2e-3,
        classes_per_batch=call.pick(16, 32, 32),
        steps=call.pick(2, 400, 2000),
        validate_every=call.pick(2, 200, 200),
        patience=100,
        **common,
    )
