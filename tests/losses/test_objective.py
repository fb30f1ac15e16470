"""Objectives, from Python and from chains."""

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import ContrastiveLoss
from torch import Tensor

from sumpool.errors import InputError
from sumpool.losses import (
    PRESETS,
    WRAPPERS,
    Contrastive,
    FarPush,
    Memory,
    MultiSimilarity,
    Objective,
    OriginalContrastive,
    Proxies,
    ProxyAnchor,
    Term,
    Triplet,
    ZeroShotPrediction,
    create_objective,
)

Batch = tuple[Tensor, Tensor]


def test_total_is_the_weighted_sum_of_named_values(batch: Batch) -> None:
    embeddings, labels = batch
    objective = Objective([Term("pairs", 0.9, Contrastive()), Term("triplets", 0.5, Triplet())])
    total, values = objective(embeddings, labels)
    torch.testing.assert_close(values["pairs"], Contrastive()(embeddings, labels).detach())
    torch.testing.assert_close(total, 0.9 * values["pairs"] + 0.5 * values["triplets"])
    torch.testing.assert_close(values["total"], total.detach())
    assert not any(value.requires_grad for value in values.values())


def test_any_callable_is_a_term(batch: Batch) -> None:
    objective = Objective(
        [Term("theirs", 1.0, ContrastiveLoss(0, 0.5)), Term("size", 0.1, lambda x, _: x.square().mean())]
    )
    embeddings, labels = batch
    total, _ = objective(embeddings, labels)
    torch.testing.assert_close(total, Contrastive(0, 0.5)(*batch) + 0.1 * embeddings.square().mean())


def test_a_regulariser_acts_on_the_class_centres(batch: Batch) -> None:
    loss, far = ProxyAnchor(classes=6, dim=8).double(), FarPush()
    total, _ = Objective([Term("loss", 1.0, loss), Term("far", 0.3, far)])(*batch)
    torch.testing.assert_close(total, loss(*batch) + 0.3 * far(loss.proxies.vectors[:, 0]))
    with pytest.raises(InputError, match="needs a term with proxies"):
        Objective([Term("loss", 1.0, Contrastive()), Term("far", 1.0, FarPush())])


def test_full_chain(batch: Batch) -> None:
    embeddings, labels = batch
    chain = "zsr/far_push/ccp/xbm/original_contrastive"
    settings = {"far_push": {"weight": 0.5}, "xbm": {"start": 0}}
    objective = create_objective(chain, classes=6, dim=8, preset="cub", settings=settings).double()
    assert [(term.name, term.weight) for term in objective.terms] == [
        ("original_contrastive", 0.9),
        ("zsr", 0.1),
        ("far_push", 0.45),
    ]
    proxies = objective.losses["original_contrastive"]
    assert isinstance(proxies, Proxies)
    assert proxies.proxies.vectors.shape == (6, 8, 8)
    assert isinstance(proxies.loss, Memory)
    assert (proxies.loss.batches, proxies.loss.start) == (25, 0)
    attributes = torch.rand(10, 4, dtype=torch.float64).requires_grad_()
    total, values = objective(embeddings, labels, attributes)
    torch.testing.assert_close(
        total, 0.9 * values["original_contrastive"] + 0.1 * values["zsr"] + 0.45 * values["far_push"]
    )
    assert all(
        gradient.abs().sum() > 0
        for gradient in torch.autograd.grad(total, [embeddings, attributes, *objective.parameters()])
    )


def test_chain_equals_python(batch: Batch) -> None:
    chain = create_objective("multi_similarity", preset="cars")
    torch.testing.assert_close(chain(*batch).total, MultiSimilarity(14.35, 75.83, 0.66)(*batch))
    chain = create_objective("original_contrastive")
    torch.testing.assert_close(chain(*batch).total, OriginalContrastive()(*batch))


def test_string_labels_with_the_class_list(batch: Batch) -> None:
    embeddings, labels = batch
    words = [f"bird {label}" for label in range(6)]
    torch.manual_seed(0)
    named = create_objective("ccp/contrastive", classes=words, dim=8).double()
    torch.manual_seed(0)
    numbered = create_objective("ccp/contrastive", classes=6, dim=8).double()
    torch.testing.assert_close(named(embeddings, [words[y] for y in labels]).total, numbered(*batch).total)
    with pytest.raises(InputError, match="label 'ostrich' of row 0 is not among the 6 classes"):
        named(embeddings[:1], ["ostrich"])


def test_an_unknown_label_keeps_its_name_without_a_class_list(batch: Batch) -> None:
    embeddings, labels = batch
    words = [f"bird {label}" for label in range(6)]
    objective = Objective(
        [Term("anchor", 1.0, ProxyAnchor(words, dim=8)), Term("zsr", 0.1, ZeroShotPrediction(words, 8))]
    )
    assert objective(embeddings, [words[y] for y in labels], torch.rand(10, 4)).total.isfinite()
    with pytest.raises(InputError, match="label 'ostrich' of row 1 is not among the 6 classes"):
        objective(embeddings[:2], ["bird 0", "ostrich"], torch.rand(2, 4))


def test_regularisers_in_any_order() -> None:
    for chain in ("zsr/energy/far_push/proxy_anchor", "far_push/energy/ccp/xbm/triplet"):
        names = chain.split("/")
        terms = create_objective(chain, classes=np.int64(6), dim=8).terms
        assert [term.name for term in terms] == [names[-1], *[n for n in names if n not in ("ccp", "xbm", names[-1])]]


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        ("zsr", "zsr wraps a loss"),
        ("contrastive/xbm", "xbm wraps a loss"),
        ("triplet/contrastive", "triplet is a loss and must come last"),
        ("xbm/proxy_anchor", "no pairs for xbm to extend"),
        ("ccp/soft_triple", "no pairs for ccp to extend"),
        ("ccp/libc", "no pairs for ccp to extend"),
        ("xbm/zsr/contrastive", "the order is zsr"),
        ("xbm/ccp/contrastive", "the order is zsr"),
        ("ccp/far_push/contrastive", "the order is zsr"),
        ("far_push/zsr/proxy_anchor", "the order is zsr"),
        ("xbm/xbm/contrastive", "appears twice"),
        ("far_push/contrastive", "regularises class proxies, and contrastive has none"),
        ("zsr/xbn/contrastive", "unknown name in a loss chain 'xbn': did you mean 'xbm'"),
        ("", "unknown name in a loss chain ''"),
    ],
)
def test_a_senseless_chain_is_refused_with_the_reason(chain: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        create_objective(chain, classes=6, dim=8)


def test_missing_sizes_and_foreign_settings_are_named() -> None:
    with pytest.raises(InputError, match="proxy_anchor learns something per class and needs classes and dim"):
        create_objective("proxy_anchor")
    with pytest.raises(InputError, match="settings for 'xbm', which is not in the chain 'zsr/triplet'"):
        create_objective("zsr/triplet", classes=3, dim=4, settings={"xbm": {}})
    with pytest.raises(InputError, match="'xbm' has no setting 'size'"):
        create_objective("xbm/triplet", settings={"xbm": {"size": 3}})
    with pytest.raises(InputError, match="unknown preset 'cubs'"):
        create_objective("triplet", preset="cubs")
    with pytest.raises(InputError, match="weight of zsr must be between 0 and 1, got 2"):
        create_objective("zsr/triplet", classes=3, dim=4, settings={"zsr": {"weight": 2}})
    with pytest.raises(InputError, match="weight of far_push must be a finite number, got 'x'"):
        create_objective("far_push/proxy_nca", classes=3, dim=4, settings={"far_push": {"weight": "x"}})
    with pytest.raises(InputError, match="settings of triplet must be a dictionary of names and values, got 3"):
        create_objective("triplet", settings={"triplet": 3})


def test_missing_attributes_are_named(batch: Batch) -> None:
    objective = create_objective("zsr/contrastive", classes=6, dim=8)
    with pytest.raises(InputError, match="the pooling gives none"):
        objective(*batch)


def test_objectives_need_distinct_names() -> None:
    with pytest.raises(InputError, match="different names"):
        Objective([Term("a", 1.0, Triplet()), Term("a", 1.0, Contrastive())])
    with pytest.raises(InputError, match="can't contain"):
        Objective([Term("a.b", 1.0, Triplet())])
    with pytest.raises(InputError, match="other than 'total'"):
        Objective([Term("total", 1.0, Triplet())])


def test_presets_name_components_and_their_settings() -> None:
    for dataset, components in PRESETS.items():
        for name in components:
            chain = f"{name}/contrastive" if name in WRAPPERS else name
            create_objective(chain, classes=3, dim=4, preset=dataset)


def test_published_settings() -> None:
    # The published table, re-typed by loss: CUB, Cars, In-shop, SOP.
    by_loss = {
        "contrastive": [(0, 0.3841), (0.2652, 0.5409), (0.2858, 0.5130), (0.2858, 0.5130)],
        "triplet": [(0.0961,), (0.1190,), (0.0451,), (0.0451,)],
        "multi_similarity": [(2, 40, 0.5), (14.35, 75.83, 0.66), (8.49, 57.38, 0.41), (2, 40, 0.5)],
        "soft_triple": [
            (20, 0.1, 0.2, 0.01, 10),
            (17.69, 19.18, 0.0669, 0.3588, 10),
            (20, 0.1, 0.2, 0.01, 4),
            (100, 47.9, 0.2, 0.3145, 4),
        ],
        "xbm": [(25, 1000), (25, 1000), (400, 1000), (1400, 1000)],
        "ccp": [(8,), (8,), (4,), (4,)],
    }
    for name, rows in by_loss.items():
        for dataset, row in zip(["cub", "cars", "inshop", "sop"], rows, strict=True):
            assert tuple(PRESETS[dataset][name].values()) == row, (dataset, name)


def test_parameters_and_state_of_all_terms_are_the_objectives(batch: Batch) -> None:
    objective = create_objective("zsr/xbm/contrastive", classes=6, dim=8, settings={"xbm": {"batches": 2}})
    assert isinstance(objective.losses["zsr"], ZeroShotPrediction)
    objective(*batch, torch.rand(10, 4))
    fresh = create_objective("zsr/xbm/contrastive", classes=6, dim=8, settings={"xbm": {"batches": 2}})
    fresh.load_state_dict(objective.state_dict())
    torch.testing.assert_close(fresh.state_dict(), objective.state_dict())
