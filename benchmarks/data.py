"""Images per second from a JPEG to a training tensor: decode, random resized crop to 227, mirror, normalise.

Compared, in the same `DataLoader` with the same crops: this package, and plain Pillow code as the protocol is usually
written (decode, resize the short side to 256, crop and resize to 227, to tensor), each on one and on two workers; also
torchvision's transforms where torchvision can be imported. The photos are made on the spot: octaves of noise, JPEG
quality 90. Aim: at least 1.5 times plain Pillow on large photos. What bounds it: on large photos the entropy
decoding of the JPEG, which scaled decoding cannot leave out; on packs the resampling and the normalisation, which both
sides do; in memory nothing is decoded. A second worker helps as far as a second core is free.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from benchmarks.measure import median_seconds
from sumpool.data import Dataset, InOrder, Loader, RandomResizedCrop, Record, in_memory, read_pack, write_pack
from sumpool.data.image import open_image
from sumpool.data.transforms import random_box
from sumpool.types import Preprocessing

COUNT = 32
MEAN, STD = (torch.tensor(values).view(3, 1, 1) for values in (Preprocessing().mean, Preprocessing().std))
AREA, RATIO = ((40 / 256) ** 2, 1.0), (3 / 4, 4 / 3)


def run() -> list[dict[str, str | int]]:
    with tempfile.TemporaryDirectory() as folder:
        large = photos(Path(folder) / "large", 2000, 1500)
        small = photos(Path(folder) / "small", 500, 375)
        packed = read_pack(write_pack(large, Path(folder) / "large.npz"))
        sets = {
            "JPEG files 2000×1500": large,
            "JPEG files 500×375": small.with_records(small.records * 4),
            "pack, short side 256": packed.with_records(packed.records * 8),
            "in memory, short side 256": packed.with_records(in_memory(large).records * 8),
        }
        return [row(name, dataset, workers) for name, dataset in sets.items() for workers in (1, 2)]


def photos(folder: Path, width: int, height: int) -> Dataset:
    """Octaves of noise: smooth areas and fine texture, about the bytes per pixel of a photo."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        canvas = rng.standard_normal((height, width, 3), np.float32) * 8
        for octave in range(2, 10):
            grid = Image.fromarray(rng.integers(0, 256, (2**octave, 2**octave, 3), np.uint8))
            canvas += np.asarray(grid.resize((width, height), Image.Resampling.BICUBIC)) / 2 ** (octave - 1)
        Image.fromarray(np.clip(canvas, 0, 255).astype(np.uint8)).save(folder / f"{number}.jpg", quality=90)
    return Dataset(folder.name, [Record(path, 0) for path in sorted(folder.iterdir())], ["photo"])


def row(name: str, dataset: Dataset, workers: int) -> dict[str, str | int]:
    ours = Loader(
        dataset.transformed(RandomResizedCrop(Preprocessing(), AREA, RATIO)), InOrder(len(dataset), 16), workers
    )
    candidates: dict[str, Callable[[], object]] = {"sumpool": partial(list, ours)}
    for peer, transform in peers().items():
        batches: DataLoader[Tensor] = DataLoader(
            Plain(dataset, transform), 16, num_workers=workers, persistent_workers=True
        )
        candidates[peer] = partial(list, batches)
    rates = {key: len(dataset) / seconds for key, seconds in median_seconds(candidates, rounds=7).items()}
    result: dict[str, str | int] = {"source": name, "workers": workers}
    result |= {f"{key}, images/s": f"{rate:.0f}" for key, rate in rates.items()}
    return result | {f"÷ {key}": f"{rates['sumpool'] / rate:.2f}" for key, rate in rates.items() if key != "sumpool"}


class Plain(torch.utils.data.Dataset[Tensor]):
    """A dataset as one writes it in an afternoon."""

    def __init__(self, dataset: Dataset, transform: Callable[[Image.Image], Tensor]) -> None:
        self.dataset, self.transform = dataset, transform

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Tensor:
        return self.transform(open_image(self.dataset.records[index].source).convert("RGB"))


def plain_pillow(image: Image.Image) -> Tensor:
    rng = np.random.default_rng()
    scale = 256 / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
    left, top, right, bottom = random_box(image.width, image.height, AREA, RATIO, rng)
    image = image.crop((round(left), round(top), round(right), round(bottom)))
    image = image.resize((227, 227), Image.Resampling.BILINEAR)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    return (pixels - MEAN) / STD


def peers() -> dict[str, Callable[[Image.Image], Tensor]]:
    found: dict[str, Callable[[Image.Image], Tensor]] = {"plain Pillow": plain_pillow}
    try:
        from torchvision import transforms  # type: ignore[import-not-found, unused-ignore]
    except (ImportError, RuntimeError):  # RuntimeError: a torchvision that does not fit the installed PyTorch
        return found
    steps = [transforms.Resize(256), transforms.RandomResizedCrop(227, AREA, RATIO), transforms.RandomHorizontalFlip()]
    steps += [transforms.ToTensor(), transforms.Normalize(Preprocessing().mean, Preprocessing().std)]
    return found | {"torchvision": transforms.Compose(steps)}
