"""Data sets as tensors: the embedded digits, and directories of four files in every usual layout."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from rankup.errors import RankupError
from rankup.workloads.data.catalog import (
    DATASETS,
    DIGITS_FOLDER,
    FILES,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
)
from rankup.workloads.data.idx import read_idx, write_idx
from rankup.workloads.data.images import load_images

FASHION = DATASETS["fashion-mnist"].debian_folder


def fill(folder: Path, suffix: str = ".gz", train: int = 6, test: int = 4, pixel: int = 0) -> Path:
    """Four small files: blank images, and labels 0, 1, 2, …"""
    folder.mkdir(parents=True, exist_ok=True)
    for images, labels, count in ((TRAIN_IMAGES, TRAIN_LABELS, train), (TEST_IMAGES, TEST_LABELS, test)):
        write_idx(folder / f"{images}{suffix}", torch.full((count, 28, 28), pixel, dtype=torch.uint8))
        write_idx(folder / f"{labels}{suffix}", torch.arange(count, dtype=torch.uint8))
    return folder


@pytest.mark.parametrize(("train", "count"), [(True, 1437), (False, 360)])
def test_the_digits_need_no_network_and_look_like_mnist(train, count):
    images, labels = load_images("digits", train=train)
    assert (images.dtype, tuple(images.shape)) == (torch.uint8, (count, 28, 28))
    assert (labels.dtype, tuple(labels.shape)) == (torch.int64, (count,))
    assert int(images.max()) > 240
    assert int(images[:, :4].max()) == int(images[:, :, -4:].max()) == 0  # the border
    shares = torch.bincount(labels, minlength=10) / count
    assert shares.min() > 0.09 and shares.max() < 0.11


def test_the_digits_for_training_and_for_test_have_no_image_in_common():
    sets = [{bytes(i) for i in read_idx(DIGITS_FOLDER / f"{n}.gz").flatten(1).tolist()} for n in FILES[::2]]
    assert len(sets[0]) == 1437 and len(sets[1]) == 360
    assert not sets[0] & sets[1]


if find_spec("sklearn"):

    def test_the_digits_are_those_of_scikit_learn():
        from sklearn.datasets import load_digits

        bunch = load_digits()
        pixels = bunch.data.astype("uint8")
        theirs = sorted((bytes(image), int(digit)) for image, digit in zip(pixels, bunch.target, strict=True))
        ours = []
        for images, labels in ((TRAIN_IMAGES, TRAIN_LABELS), (TEST_IMAGES, TEST_LABELS)):
            pixels = read_idx(DIGITS_FOLDER / f"{images}.gz").flatten(1).tolist()
            ours += zip(map(bytes, pixels), read_idx(DIGITS_FOLDER / f"{labels}.gz").tolist(), strict=True)
        assert sorted(ours) == theirs


@pytest.mark.skipif(
    not (FASHION and FASHION.is_dir()), reason="Debian's dataset-fashion-mnist is not installed"
)
def test_debians_fashion_mnist_is_found_by_its_name(monkeypatch):
    monkeypatch.delenv("RANKUP_DATA", raising=False)
    images, labels = load_images("fashion-mnist", train=False)
    assert tuple(images.shape) == (10_000, 28, 28)
    assert torch.bincount(labels).tolist() == [1000] * 10


@pytest.mark.parametrize("layout", [".", "raw", "MNIST/raw", "FashionMNIST/raw"])
@pytest.mark.parametrize("suffix", [".gz", ""], ids=["packed", "plain"])
def test_a_directory_is_read_in_every_usual_layout(tmp_path, layout, suffix):
    fill(tmp_path / layout, suffix, pixel=7)
    images, labels = load_images(str(tmp_path), train=True)
    assert torch.equal(images, torch.full((6, 28, 28), 7, dtype=torch.uint8))
    assert labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(load_images(str(tmp_path), train=False)[1]) == 4


def test_a_directory_with_two_data_sets_asks_which(tmp_path):
    fill(tmp_path / "MNIST/raw")
    fill(tmp_path / "FashionMNIST/raw", test=3)
    with pytest.raises(RankupError, match="MNIST/raw, FashionMNIST/raw"):
        load_images(str(tmp_path), train=True)
    assert len(load_images(str(tmp_path / "FashionMNIST"), train=False)[0]) == 3


def test_a_missing_file_is_named(tmp_path):
    (fill(tmp_path) / f"{TEST_LABELS}.gz").unlink()
    with pytest.raises(RankupError, match=f"lacks {TEST_LABELS} ") as caught:
        load_images(str(tmp_path), train=True)
    assert caught.value.code == "incomplete-data"


def test_a_truncated_file_is_named(tmp_path):
    path = fill(tmp_path, suffix="") / TRAIN_IMAGES
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RankupError, match=rf"{TRAIN_IMAGES}.*truncated"):
        load_images(str(tmp_path), train=True)


def test_labels_of_another_set_are_refused(tmp_path):
    fill(tmp_path)
    write_idx(tmp_path / f"{TRAIN_LABELS}.gz", torch.zeros(5, dtype=torch.uint8))
    with pytest.raises(
        RankupError, match=rf"{TRAIN_LABELS}.*shape \(5,\), not one integer for each of 6 images"
    ):
        load_images(str(tmp_path), train=True)


def test_labels_that_the_network_does_not_know_are_refused(tmp_path):
    fill(tmp_path, train=11)
    with pytest.raises(RankupError, match="labels from 0 to 10; expected 0 to 9"):
        load_images(str(tmp_path), train=True)


@pytest.mark.parametrize("shape", [(6, 32, 32), (6, 784), (0, 28, 28)])
def test_images_of_another_shape_are_refused(tmp_path, shape):
    fill(tmp_path)
    write_idx(tmp_path / f"{TRAIN_IMAGES}.gz", torch.zeros(shape, dtype=torch.uint8))
    with pytest.raises(RankupError, match=f"{TRAIN_IMAGES}.*not torch.uint8 of") as caught:
        load_images(str(tmp_path), train=True)
    assert str(shape) in caught.value.message
