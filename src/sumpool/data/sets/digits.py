"""scikit-learn's digits: 1797 real scans of 8×8 pixels (Alpaydin and Kaynak 1998)."""

import numpy as np

from sumpool.data.dataset import Dataset
from sumpool.data.record import Record
from sumpool.errors import InputError
from sumpool.types import Preprocessing

TRAIN = 1200  # of the scans, with `shared`


def digits(shared: bool = False) -> Dataset:
    """8-px scans of handwritten digits from scikit-learn: 0 to 4 train, 5 to 9 test; with `shared`, all in both."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ImportError:
        raise InputError("the digits come with scikit-learn: pip install 'sumpool[data]'") from None
    content = load_digits()
    images = np.round(content.images * (255 / 16)).astype(np.uint8)
    training = np.arange(len(images)) < TRAIN if shared else content.target < 5
    records = [
        Record(image, int(label), "train" if training[row] else "test", name=f"digit {row}")
        for row, (image, label) in enumerate(zip(images, content.target, strict=True))
    ]
    preprocessing = Preprocessing(8, 8, mean=(0.3,), std=(0.38,), channels="gray")
    return Dataset("digits", records, [str(digit) for digit in range(10)], preprocessing)
