"""A data set of small grey images as two tensors: the embedded digits, MNIST, Fashion-MNIST, or your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankup.errors import RankupError
from rankup.workloads.data.catalog import (
    DIGITS_FOLDER,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
)
from rankup.workloads.data.idx import read_idx
from rankup.workloads.data.places import find_or_fetch, path_of

if TYPE_CHECKING:
    from pathlib import Path

    import torch

SIDE = 28
CLASSES = 10
_DIGIT_MAX = 16  # the UCI digits count the inked pixels of a 4×4 block


def load_images(source: str, *, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The training or the test set of ``source``: images uint8 (N, 28, 28), labels int64 (N,) in 0..9.

    ``source`` is ``digits``, ``mnist``, ``fashion-mnist``, or a directory with the four IDX files, gzipped or
    plain, in it or in torchvision's folders below it. A name that is not found on this machine is downloaded.
    """
    folder = find_or_fetch(source)
    images_path = path_of(folder, TRAIN_IMAGES if train else TEST_IMAGES)
    labels_path = path_of(folder, TRAIN_LABELS if train else TEST_LABELS)
    assert images_path and labels_path, folder  # find_or_fetch saw them
    images, labels = read_idx(images_path), read_idx(labels_path)
    if folder == DIGITS_FOLDER:
        images = _enlarge(images)
    _check_images(images, images_path)
    _check_labels(labels, len(images), labels_path)
    return images, labels.long()


def _enlarge(digits: torch.Tensor) -> torch.Tensor:
    """(N, 8, 8) in 0..16 to uint8 (N, 28, 28) in 0..255: as in MNIST, a digit of 20×20 inside a border of 4."""
    import torch
    from torch.nn import functional

    # In float64, so that all machines round to the same pixels.
    grey = digits.to(torch.float64).unsqueeze(1) * (255 / _DIGIT_MAX)
    large = functional.interpolate(grey, size=(20, 20), mode="bilinear", align_corners=False)
    return functional.pad(large, (4, 4, 4, 4)).squeeze(1).round().to(torch.uint8)


def _check_images(images: torch.Tensor, path: Path) -> None:
    shape = tuple(images.shape)
    if str(images.dtype) != "torch.uint8" or len(shape) != 3 or shape[1:] != (SIDE, SIDE) or not shape[0]:
        raise RankupError(
            "wrong-images",
            f"{str(path)!r} holds {images.dtype} of shape {shape}, not torch.uint8 of (N, {SIDE}, {SIDE})",
            hint=f"this network needs grey images of {SIDE}×{SIDE}",
        )


def _check_labels(labels: torch.Tensor, images: int, path: Path) -> None:
    if labels.dim() != 1 or labels.is_floating_point() or len(labels) != images:
        raise RankupError(
            "wrong-labels",
            f"{str(path)!r} holds {labels.dtype} of shape {tuple(labels.shape)}, not one integer for each of "
            f"{images} images",
            hint="check that images and labels are of the same data set",
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= CLASSES:
        raise RankupError(
            "wrong-labels",
            f"{str(path)!r} holds labels from {low} to {high}; expected 0 to {CLASSES - 1}",
            hint=f"this network has {CLASSES} classes",
        )
