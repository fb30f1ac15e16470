"""The one dataset: records, the names of their classes, and how images become tensors."""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sumpool.data.folds import fold_ranges
from sumpool.data.image import decode, naming, open_image
from sumpool.data.record import SPLITS, Box, Record
from sumpool.data.samplers import Draw
from sumpool.errors import InputError
from sumpool.registry import lookup
from sumpool.types import Preprocessing

Sample: TypeAlias = tuple[Tensor, int, int]
"""Image (C,H,W), label, row."""
ImageTransform: TypeAlias = Callable[[Image.Image, np.random.Generator, Box | None], Tensor]


class Dataset(torch.utils.data.Dataset[Sample]):
    """Labelled images, or the part of them a split, a role or a range of classes selects.

    Labels are always 0 … C−1 over the classes of this part, in the official order, so that a loss with one proxy per
    class fits; `queries` and `gallery` keep the labels of the set they are taken from.

    Args:
        name: of the set, for messages.
        records: in a stable order.
        class_names: what `Record.label` counts in.
        preprocessing: the set's own size and range; None where the backbone decides.
    """

    def __init__(
        self,
        name: str,
        records: Sequence[Record],
        class_names: Sequence[str],
        preprocessing: Preprocessing | None = None,
    ) -> None:
        self.name, self.class_names, self.preprocessing = name, list(class_names), preprocessing
        self.transform: ImageTransform | None = None
        self.seed, self.crop_boxes = 0, False
        self._select(records)

    def _select(self, records: Sequence[Record], keep_labels: bool = False) -> None:
        if not records:
            raise InputError(f"dataset {self.name} has no images here: check the split, the role and the files")
        self.records = list(records)
        ids = np.array([record.label for record in self.records])
        if not keep_labels:
            self.class_ids = np.unique(ids)
        self.classes = [self.class_names[number] for number in self.class_ids]
        self.labels = torch.from_numpy(np.searchsorted(self.class_ids, ids).astype(np.int64))

    def with_records(self, records: Sequence[Record], keep_labels: bool = False) -> "Dataset":
        """The same set with other records; labels are counted anew unless kept."""
        part = copy.copy(self)
        part._select(records, keep_labels)
        return part

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, draw: Draw | int) -> Sample:
        """The sample of a row; a `Draw` also decides what random augmentation does."""
        index, epoch, position = draw if isinstance(draw, Draw) else (int(draw), 0, int(draw))
        record = self.records[index]
        with naming(record.title):
            if self.transform is None or record.is_tokens:
                image = self._untouched(record)
            else:
                rng = np.random.default_rng((self.seed, epoch, position))
                image = self.transform(open_image(record.source), rng, record.box if self.crop_boxes else None)
        return image, int(self.labels[index]), index

    def _untouched(self, record: Record) -> Tensor:
        """Tokens as they are, or the full image as (C,H,W) uint8."""
        if record.is_tokens:
            return torch.as_tensor(record.source)
        image = open_image(record.source)
        pixels = np.array(decode(image, "L" if image.mode == "L" else "RGB"))
        return torch.from_numpy(pixels).reshape(*pixels.shape[:2], -1).permute(2, 0, 1).contiguous()

    def image(self, index: int) -> Image.Image:
        """The upright RGB picture of a row, for people to look at; with `crop_boxes`, what its box shows."""
        record = self.records[index]
        with naming(record.title):
            picture = decode(open_image(record.source))
            if not self.crop_boxes or record.box is None:
                return picture
            left, top, right, bottom = record.box
            return picture.crop((round(left), round(top), round(right), round(bottom)))

    def split(self, name: str) -> "Dataset":
        """Only the images of "train", "val" or "test"."""
        known = {split: split for split in SPLITS if any(record.split == split for record in self.records)}
        lookup(f"split of {self.name}", known, name)
        return self.with_records([record for record in self.records if record.split == name])

    def of_classes(self, labels: Sequence[int]) -> "Dataset":
        """Only the images of some classes, given as labels of this set."""
        wanted = {int(self.class_ids[label]) for label in labels}
        return self.with_records([record for record in self.records if record.label in wanted])

    def hold_out(self, parts: int, part: int) -> tuple["Dataset", "Dataset"]:
        """Training and validation set of a fold: contiguous class range `part` of `parts` is held out."""
        ranges = fold_ranges(len(self.classes), parts)
        if not 0 <= part < parts:
            raise InputError(f"fold must be between 0 and {parts - 1}, got {part}")
        kept = [label for number, fold in enumerate(ranges) if number != part for label in fold]
        return self.of_classes(kept), self.of_classes(ranges[part])

    def hold_out_images(self, parts: int, part: int) -> tuple["Dataset", "Dataset"]:
        """The same for tests on known classes: of every class, each `parts`-th image is held out."""
        if not 0 <= part < parts:
            raise InputError(f"fold must be between 0 and {parts - 1}, got {part}")
        number: Counter[int] = Counter()
        sides: tuple[list[Record], list[Record]] = [], []
        for record in self.records:
            sides[number[record.label] % parts == part].append(record)
            number[record.label] += 1
        return self.with_records(sides[0]), self.with_records(sides[1])

    @property
    def has_roles(self) -> bool:
        """Whether queries and gallery are different images."""
        return any(record.role != "both" for record in self.records)

    def queries(self) -> "Dataset":
        """Images to search for."""
        return self.with_records([record for record in self.records if record.role != "gallery"], keep_labels=True)

    def gallery(self) -> "Dataset":
        """Images to search in."""
        return self.with_records([record for record in self.records if record.role != "query"], keep_labels=True)

    def transformed(self, transform: ImageTransform, seed: int = 0, crop_boxes: bool | None = None) -> "Dataset":
        """The same images through a transform, its randomness seeded.

        `crop_boxes` says whether each image is cut to its box first; by default that stays as it is.
        """
        part = copy.copy(self)
        part.transform, part.seed = transform, seed
        part.crop_boxes = self.crop_boxes if crop_boxes is None else crop_boxes
        return part

    def cropped(self) -> "Dataset":
        """The same images, each cut to its box; one without a box stays whole."""
        if all(record.box is None for record in self.records):
            raise InputError(f"dataset {self.name} has no boxes to crop: leave crop_boxes out")
        part = copy.copy(self)
        part.crop_boxes = True
        return part

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {len(self)} images, {len(self.classes)} classes)"
