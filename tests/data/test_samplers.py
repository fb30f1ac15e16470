"""What a batch holds, for every sampler and for the P×K one in particular."""

from collections import Counter
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sumpool.data import ClassBalanced, Draw, EachClass, InOrder, Shuffled
from sumpool.data.balanced import Deck
from sumpool.data.samplers import BatchSampler
from sumpool.errors import InputError

LABELS = torch.tensor([3, 5, 5, 7, 7, 7, 9, 9, 9, 9, 11, 11, 11, 11, 11] * 2)
SAMPLERS = {
    "balanced": lambda **share: ClassBalanced(LABELS, 2, 4, steps=7, seed=1, **share),
    "each": lambda **share: EachClass(LABELS, 2, batch_size=4, seed=1, **share),
    "shuffled": lambda **share: Shuffled(len(LABELS), 4, seed=1, **share),
    "in-order": lambda **share: InOrder(len(LABELS), 4, **share),
}
every_sampler = pytest.mark.parametrize("name", list(SAMPLERS))


def epoch(sampler: BatchSampler, number: int, start: int = 0) -> list[list[Draw]]:
    sampler.set_epoch(number, start)
    return list(sampler)


@every_sampler
def test_deterministic_by_seed_and_epoch(name: str) -> None:
    one, other = SAMPLERS[name](), SAMPLERS[name]()
    forward = [epoch(one, number) for number in range(4)]
    backward = [epoch(other, number) for number in reversed(range(4))]
    assert forward == backward[::-1]
    rows = [[draw.row for batch in batches for draw in batch] for batches in forward]
    assert (rows[0] == rows[1]) == (name == "in-order")


@every_sampler
def test_resumes_inside_an_epoch(name: str) -> None:
    whole = epoch(SAMPLERS[name](), 2)
    assert len(whole) == len(SAMPLERS[name]())
    for start in range(len(whole)):
        assert epoch(SAMPLERS[name](), 2, start) == whole[start:]


@every_sampler
def test_processes_share_the_batches_of_one(name: str) -> None:
    alone = epoch(SAMPLERS[name](), 1)
    shares = [epoch(SAMPLERS[name](rank=rank, world_size=2), 1) for rank in (0, 1)]
    assert [first + second for first, second in zip(*shares, strict=True)] == alone


@every_sampler
def test_positions_count_the_draws_of_an_epoch(name: str) -> None:
    draws = [draw for batch in epoch(SAMPLERS[name](), 3) for draw in batch]
    assert [draw.position for draw in draws] == list(range(len(draws)))
    assert {draw.epoch for draw in draws} == {3}


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    data=st.data(),
    per_class=st.integers(1, 6),
    seed=st.integers(0, 10),
)
@settings(max_examples=60, deadline=None)
def test_batches_are_p_classes_times_k(sizes: list[int], data: st.DataObject, per_class: int, seed: int) -> None:
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    classes = data.draw(st.integers(1, len(sizes)))
    sampler = ClassBalanced(labels, classes, per_class, steps=12, seed=seed)
    stream = [[draw.row for draw in batch] for number in range(2) for batch in epoch(sampler, number)]
    visits: list[int] = []
    for batch in stream:
        found = labels[batch].view(classes, per_class)
        assert (found == found[:, :1]).all()  # class by class
        order = found[:, 0].tolist()
        assert len(set(order)) == classes  # never twice in a batch
        visits += order
        for label, rows in zip(order, torch.tensor(batch).view(classes, per_class).tolist(), strict=True):
            assert max(Counter(rows).values()) == -(-per_class // sizes[label])  # no repeats while there are enough
    seen: Counter[int] = Counter()
    for label in visits:  # every class before any repeats, up to the order inside one batch
        seen[label] += 1
    if len(visits) % len(sizes) == 0:
        assert len(set(seen.values())) == 1
    assert max(seen.values()) - min(seen[label] for label in range(len(sizes))) <= 1


def test_every_image_of_a_class_before_repeats() -> None:
    labels = torch.zeros(10, dtype=torch.int64)
    batches = epoch(ClassBalanced(labels, 1, 4, steps=5), 0)
    rows = [draw.row for batch in batches for draw in batch]
    assert Counter(rows) == dict.fromkeys(range(10), 2)


def test_all_classes_in_a_batch_is_exact() -> None:
    labels = torch.arange(6).repeat(5)
    for batch in epoch(ClassBalanced(labels, 6, 2), 0):
        assert Counter(labels[[draw.row for draw in batch]].tolist()) == dict.fromkeys(range(6), 2)


def test_default_epoch_shows_as_many_images_as_there_are() -> None:
    assert len(ClassBalanced(torch.arange(10).repeat(10), 8, 4)) == 4  # 100 images in batches of 32


def test_each_class_gives_every_class_once() -> None:
    draws = [draw.row for batch in epoch(EachClass(LABELS, 3, batch_size=4), 0) for draw in batch]
    assert Counter(LABELS[draws].tolist()) == dict.fromkeys([3, 5, 7, 9, 11], 3)
    rows = [row for row in draws if LABELS[row] == 11]
    assert len(set(rows)) == 3


def test_deck_owes_what_it_held_back() -> None:
    import numpy as np

    deck, rng = Deck(range(5)), np.random.default_rng(0)
    dealt = [card for _ in range(5) for card in deck.deal(3, rng)]
    assert all(Counter(dealt[: 5 * rounds]).total() == 5 * rounds for rounds in (1, 2, 3))
    assert Counter(dealt) == dict.fromkeys(range(5), 3)


def test_streams_differ_between_seeds() -> None:
    first, second = (list(islice(iter(ClassBalanced(LABELS, 2, 2, seed=seed)), 4)) for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClassBalanced(LABELS, 6, 2), "between 1 and 5 classes"),
        (lambda: ClassBalanced(LABELS, 2, 0), "must be at least 1"),
        (lambda: ClassBalanced(LABELS, 3, 2, world_size=2), "cannot be shared by 2 processes"),
        (lambda: ClassBalanced(LABELS[:0], 3, 2), "not empty"),
        (lambda: ClassBalanced(LABELS, 2, 2, rank=2, world_size=2), "rank must be between"),
        (lambda: Shuffled(3, 4), "batch_size must be between 1 and the 3 images"),
        (lambda: InOrder(0), "at least one image"),
        (lambda: EachClass(LABELS, 0), "must be at least 1"),
    ],
)
def test_impossible_batches_are_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]
