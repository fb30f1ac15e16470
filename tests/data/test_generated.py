"""Sets made without download hold what their descriptions say."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sumpool.data import DATASETS, Dataset
from sumpool.data.sets import cifar_collage as collage_module
from sumpool.data.sets import fonts
from sumpool.data.sets.glyphs import TILE, collages, divided, tiles
from sumpool.errors import InputError

Load = Callable[[str], Dataset]


def test_tokens_mix_class_and_background() -> None:
    dataset = DATASETS["tokens"](per_class=60)
    shares = []
    for record in dataset.records:
        own = record.source // 4 == record.label
        assert np.all(own | (record.source >= 64))
        assert record.source.max() < 68
        shares.append(own.mean())
    assert len(dataset) == 3 * 16 * 60
    assert np.mean(shares) == pytest.approx(0.5, abs=0.01)
    assert np.std(shares) == pytest.approx(0.1, abs=0.01)


def test_toy_has_two_blocks_of_25_pixels() -> None:
    dataset = DATASETS["toy"](per_class=8)
    assert dataset.class_names[0] == "red-blue"
    for record in dataset.records[:8]:
        pixels = record.source.reshape(-1, 3)
        assert (pixels == (255, 0, 0)).all(1).sum() == 25
        assert (pixels == (0, 0, 255)).all(1).sum() == 25
        assert (pixels == 0).all(1).sum() == 50


def test_fonts_give_hundreds_of_letters_that_look_different() -> None:
    assert len(fonts.faces()) == 12
    letters, symbols = fonts.letters(), fonts.symbols()
    assert len(letters) >= 300
    assert len(symbols) >= 300
    assert not set(letters) & set(symbols)
    assert "A" in letters  # Greek Alpha and Cyrillic A are the same picture and are left out
    assert not {"Α", "А"} & set(letters)


def test_glyph_collage_shares_neither_letters_nor_symbols_between_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[frozenset[str], set[str]] = {}

    def spy(wanted: np.ndarray, background: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        seen[frozenset(wanted.tolist())] = set(background.tolist())
        return collages(wanted, background, rng)

    monkeypatch.setattr("sumpool.data.sets.glyphs.collages", spy)
    DATASETS["glyph-collage"](per_class=1, classes=50)
    assert [len(letters) for letters in seen] == [20, 10, 20]
    for parts in (list(seen), list(seen.values())):
        assert len(set().union(*parts)) == sum(len(part) for part in parts)


def test_a_collage_shows_the_letter_once_and_three_different_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[np.ndarray] = []

    def spy(characters: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        drawn.append(characters.reshape(-1, 4))
        return tiles(characters, rng)

    monkeypatch.setattr("sumpool.data.sets.glyphs.tiles", spy)
    background = np.array(fonts.symbols()[:10])
    images, quarters = collages(np.array(["A", "B"] * 20), background, np.random.default_rng(0))
    assert images.shape == (40, 2 * TILE, 2 * TILE)
    for wanted, row, quarter in zip("AB" * 20, drawn[0], quarters, strict=True):
        assert row[quarter] == wanted
        assert (row == wanted).sum() == 1
        assert len(set(row.tolist())) == 4
        assert set(row.tolist()) - {wanted} <= set(background.tolist())
    assert set(quarters.tolist()) == {0, 1, 2, 3}


def test_the_box_of_a_collage_shows_its_letter_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sumpool.data.sets.glyphs.noisy", lambda ink, rng: ink)
    monkeypatch.setattr(
        "sumpool.data.sets.glyphs.tiles",
        lambda characters, rng: np.repeat(np.isin(characters, fonts.letters()), TILE**2).reshape(-1, TILE, TILE),
    )
    for record in DATASETS["glyph-collage"](per_class=1, classes=50).records:
        left, top, right, bottom = (int(edge) for edge in record.box or ())
        assert record.source[top:bottom, left:right].all()  # type: ignore[call-overload]
        assert record.source.sum() == TILE**2  # type: ignore[union-attr]


def test_pretraining_letters_and_symbols_are_those_of_the_collage(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []

    def spy(wanted: np.ndarray, background: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        seen.append({*wanted.tolist(), *background.tolist()})
        return collages(wanted, background, rng)

    monkeypatch.setattr("sumpool.data.sets.glyphs.collages", spy)
    DATASETS["glyph-collage"](per_class=1, classes=50, seed=3)
    single = DATASETS["glyphs"](per_class=1, classes=50, seed=3, background=True)
    assert [set(single.split(name).classes) for name in ("train", "val", "test")] == seen


def test_every_tile_has_ink_and_quarters_land_in_place() -> None:
    ink = tiles(np.array(fonts.letters()[:50]), np.random.default_rng(0))
    assert (ink.max((1, 2)) > 128).all()
    plain = tiles(np.array(["I"] * 4), np.random.default_rng(1))
    again = tiles(np.array(["I"] * 4), np.random.default_rng(1))
    assert np.array_equal(plain, again)


def test_divided_is_two_to_one_to_two() -> None:
    assert {split: len(part) for split, part in divided(np.arange(100)).items()} == {"train": 40, "val": 20, "test": 40}


@pytest.mark.parametrize("settings", [{"per_class": 0}, {"classes": 3}, {"classes": 10_000}])
def test_impossible_glyph_sets_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InputError, match="per_class must be at least 1 and classes between 5 and"):
        DATASETS["glyphs"](**settings)


def test_digits_are_the_real_scans() -> None:
    from sklearn.datasets import load_digits

    dataset, truth = DATASETS["digits"](), load_digits()
    assert len(dataset) == 1797
    assert np.array_equal(dataset.records[7].source, np.round(truth.images[7] * 255 / 16))
    assert [record.label for record in dataset.records] == truth.target.tolist()


def test_cifar_collage_keeps_background_and_classes_apart(load: Load) -> None:
    photos, scenes = load("cifar100"), load("cifar-collage")
    owner = {record.source.tobytes(): record.label for record in photos.records}
    used: dict[str, tuple[set[int], set[int]]] = {split: (set(), set()) for split in ("train", "val", "test")}
    for record in scenes.records:
        labels = [owner[tile.tobytes()] for tile in record.source]
        assert labels.count(record.label) == 1
        used[record.split][0].add(record.label)
        used[record.split][1].update(set(labels) - {record.label})
    assert [len(classes) for classes, _ in used.values()] == [32, 16, 32]
    hidden = set().union(*(background for _, background in used.values()))
    assert len({label // 5 for label in hidden}) == 4  # the small archive numbers sub-classes by super-class
    assert sum(len(background) for _, background in used.values()) == len(hidden)
    assert not hidden & set().union(*(classes for classes, _ in used.values()))
    assert scenes[0][0].shape == (3, 64, 64)


def test_collages_of_super_classes_and_chosen_background(root: Path) -> None:
    plain = DATASETS["cifar-collage"](root, per_class=2, verify=False, background=[2, 9])
    grouped = DATASETS["cifar-collage"](root, per_class=2, verify=False, background=[2, 9], groups=True)
    group = collage_module.coarse_labels(root, plain.class_names)
    assert [r.label for r in grouped.records] == [group[r.label] for r in plain.records]
    assert set(group) - {r.label for r in grouped.records} == {2, 9}
    first = grouped.records[0].label
    assert grouped.class_names[first] == ", ".join(np.array(plain.class_names)[group == first])
    for split in ("train", "val", "test"):
        assert {r.label for r in grouped.records if r.split == split} == {r.label for r in grouped.records}
    with pytest.raises(InputError, match="super-classes, 0 to 19, got \\[20\\]"):
        DATASETS["cifar-collage"](root, verify=False, background=[20])


def test_distilled_collages_are_the_class_images_alone(load: Load, root: object) -> None:
    scenes = load("cifar-collage")
    alone = DATASETS["cifar-collage"](root=root, per_class=2, distilled=True, verify=False)
    assert [record.label for record in alone.records] == [record.label for record in scenes.records]
    for scene, single in zip(scenes.records[:20], alone.records[:20], strict=True):
        assert any(np.array_equal(tile, single.source) for tile in scene.source)


def test_sub_classes_are_divided_two_one_two() -> None:
    split_of, hidden = collage_module.division(np.repeat(np.arange(20), 5), np.random.default_rng(0))
    assert [split_of.count(split) for split in ("train", "val", "test")] == [40, 20, 40]
    assert len(hidden) == 20
