"""CIFAR-100 from its binary files, and the stand-in for machines that have none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

from rankup.errors import RankupError
from rankup.workloads.data.cifar import load_cifar100, read_cifar100
from rankup.workloads.data.images import load_images
from rankup.workloads.data.synthetic import synthetic_images

PIXELS = 3072


def record(coarse: int, fine: int, red: int = 1, green: int = 2, blue: int = 3) -> bytes:
    return bytes([coarse, fine]) + bytes([red] * 1024 + [green] * 1024 + [blue] * 1024)


def fill(folder: Path, suffix: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (("train.bin", record(1, 42) + record(19, 99, 7)), ("test.bin", record(0, 5))):
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    return folder


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("below", ["", "cifar-100-binary"])
def test_a_directory_is_read_as_images_and_fine_labels(tmp_path, suffix, below):
    fill(tmp_path / below, suffix)
    images, labels = load_cifar100(str(tmp_path), train=True)
    assert (images.dtype, tuple(images.shape)) == (torch.uint8, (2, 3, 32, 32))
    assert (labels.dtype, labels.tolist()) == (torch.int64, [42, 99])
    assert images.flatten(2).unique(dim=2).squeeze(2).tolist() == [[1, 2, 3], [7, 2, 3]]
    assert load_cifar100(str(tmp_path), train=False)[1].tolist() == [5]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes"),
        (record(1, 2)[:-1], "3,073 bytes"),
        (record(20, 5), "up to 20 and 5"),
        (record(3, 100), "up to 3 and 100"),
        (b"\x80\x04}q\x00." * 512 + bytes(2), "up to"),  # the Python version is a pickle: it is never loaded
    ],
)
def test_a_file_that_is_not_whole_or_not_cifar100s_is_named(tmp_path, data, why):
    path = tmp_path / "train.bin"
    path.write_bytes(data)
    with pytest.raises(RankupError, match=r"train\.bin") as caught:
        read_cifar100(path)
    assert caught.value.code == "bad-cifar-file"
    assert why in caught.value.message


def test_a_packed_file_that_was_cut_is_named(tmp_path):
    path = tmp_path / "test.bin.gz"
    path.write_bytes(gzip.compress(record(1, 2))[:-9])
    with pytest.raises(RankupError, match=r"test.bin.gz.*gzip compression is damaged"):
        read_cifar100(path)


def test_a_directory_without_the_files_says_which_are_missing(tmp_path):
    (tmp_path / "train.bin").touch()
    with pytest.raises(RankupError, match=r"lacks test\.bin") as caught:
        load_cifar100(str(tmp_path), train=True)
    assert caught.value.code == "incomplete-data"


@pytest.mark.parametrize(
    ("load", "source", "offered"), [(load_images, "cifar100", "digits"), (load_cifar100, "mnist", "cifar100")]
)
def test_data_of_another_kind_is_refused_before_any_download(load, source, offered):
    with pytest.raises(RankupError, match=f"this workload does not read {source}") as caught:
        load(source, train=True)
    assert caught.value.code == "other-data"
    assert offered in caught.value.hint and source not in caught.value.hint.split(";")[0].split(", ")


def test_the_stand_in_is_the_same_everywhere_balanced_and_other_for_test():
    images, labels = synthetic_images(200, 100, train=True)
    again, _ = synthetic_images(200, 100, train=True)
    test, test_labels = synthetic_images(200, 100, train=False)
    assert (images.dtype, tuple(images.shape)) == (torch.uint8, (200, 3, 32, 32))
    assert torch.equal(images, again) and not torch.equal(images, test)
    assert torch.equal(torch.bincount(labels), torch.full((100,), 2))
    assert int(images.long().sum()) == 77870322


def test_the_stand_in_can_be_learnt_a_test_image_is_nearest_to_its_own_class():
    images, labels = synthetic_images(1000, 100, train=True)
    test, test_labels = synthetic_images(200, 100, train=False)
    means = torch.stack([images[labels == label].float().mean(0).flatten() for label in range(100)])
    nearest = torch.cdist(test.float().flatten(1), means).argmin(dim=1)
    assert torch.equal(nearest, test_labels)
