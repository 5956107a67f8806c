"""Makes the four files in ``src/rankup/workloads/data/digits/`` from scikit-learn's copy of the UCI digits.

The package needs the files alone; this tool is their provenance. Where torch and scikit-learn are installed:

    PYTHONPATH=src python tools/make_digits.py [FOLDER]

The same bytes come out each time: the split is seeded, and the gzip headers hold no time.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from rankup.workloads.data.catalog import DIGITS_FOLDER, TEST_IMAGES, TEST_LABELS, TRAIN_IMAGES, TRAIN_LABELS
from rankup.workloads.data.idx import write_idx

SEED = 1998  # the year of the data set
TEST_EVERY = 5


def split(labels: list[int]) -> tuple[list[int], list[int]]:
    """Indices for training and for test: shuffled, then every fifth of each class (of 1,797: 360) is test."""
    order = list(range(len(labels)))
    random.Random(SEED).shuffle(order)
    by_class = sorted(order, key=lambda i: labels[i])  # stable: shuffled within a class
    test = set(by_class[::TEST_EVERY])
    return [i for i in order if i not in test], [i for i in order if i in test]


def main(folder: Path) -> None:
    bunch = load_digits()
    images = torch.from_numpy(bunch.images).to(torch.uint8)  # (1797, 8, 8), 0..16
    labels = torch.from_numpy(bunch.target).to(torch.uint8)  # (1797,)
    train, test = split(labels.tolist())
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in (
        (TRAIN_IMAGES, images[train]),
        (TRAIN_LABELS, labels[train]),
        (TEST_IMAGES, images[test]),
        (TEST_LABELS, labels[test]),
    ):
        write_idx(folder / f"{name}.gz", values)
        print(f"{folder / name}.gz  {tuple(values.shape)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DIGITS_FOLDER)
