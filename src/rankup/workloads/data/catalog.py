"""The known data sets: their files with checksums, their mirrors, and the directory in which Debian installs them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankup.core.nearest import did_you_mean
from rankup.errors import RankupError

DIGITS = "digits"
DIGITS_FOLDER = Path(__file__).parent / "digits"

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"
FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)

CIFAR_TRAIN = "train.bin"
CIFAR_TEST = "test.bin"


@dataclass(frozen=True)
class Layout:
    """The files of a directory with one kind of data: ``files``, each plain or gzipped, in it or in one of ``folders``
    below it. ``words`` names them in errors."""

    words: str
    files: tuple[str, ...]
    folders: tuple[str, ...]


# torchvision's folders, seen from its root and from one below.
IDX = Layout("four IDX files", FILES, (".", "raw", "MNIST/raw", "FashionMNIST/raw"))
CIFAR100_BINARY = Layout(
    "train.bin and test.bin of CIFAR-100's binary version",
    (CIFAR_TRAIN, CIFAR_TEST),
    (".", "cifar-100-binary"),  # as the archive unpacks
)


@dataclass(frozen=True)
class RemoteFile:
    """A gzipped file of a mirror, or (``size`` 0, no ``sha256``) a file inside of a data set's archive.

    ``name`` has no ``.gz``. ``size`` (bytes) and ``sha256`` are those of the ``.gz`` file; ``content_sha256`` is that
    of the unpacked file. Both are needed: Debian's ``.gz`` files have another header, and many users keep the files
    unpacked.
    """

    name: str
    size: int = 0
    sha256: str = ""
    content_sha256: str = ""


@dataclass(frozen=True)
class Dataset:
    """A data set that can be fetched. Mirrors are URLs of folders, tried in this order.

    ``files`` are the files of a complete directory. They are fetched one by one, or in ``archive``, a ``.tar.gz``.
    """

    name: str
    summary: str
    mirrors: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    debian_package: str = ""
    debian_folder: Path | None = None
    layout: Layout = IDX
    archive: RemoteFile | None = None

    @property
    def size(self) -> int:
        """Bytes to download."""
        return self.archive.size if self.archive else sum(file.size for file in self.files)


def _dataset(name: str, row: dict[str, Any]) -> Dataset:
    files = tuple(RemoteFile(**file) for file in row.pop("files"))
    layout, archive, folder = (row.pop(key, None) for key in ("layout", "archive", "debian_folder"))
    others: dict[str, Any] = {key: tuple(it) if isinstance(it, list) else it for key, it in row.items()}
    return Dataset(
        name,
        files=files,
        layout=CIFAR100_BINARY if layout == "cifar100-binary" else IDX,
        archive=RemoteFile(**archive) if archive else None,
        debian_folder=Path(folder) if folder else None,
        **others,
    )


# JSON, since a job's Python may be 3.10 without a package that reads TOML. torchvision publishes these SHA-256 sums
# with its MD5 sums. Debian's Fashion-MNIST with the gzip headers of the originals gives both. Several projects publish
# MNIST's unpacked sums, and the sum and size of CIFAR-100's archive. That is the binary version: the other one is a
# pickle, and reading a pickle runs code. The second mirror of Fashion-MNIST is the authors' bucket; its better-known
# website address has no TLS.
DATASETS: dict[str, Dataset] = {
    name: _dataset(name, row)
    for name, row in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).items()
}


def names(layout: Layout) -> list[str]:
    """The data sets that have ``layout``."""
    return [name for name in (DIGITS, *DATASETS) if layout_of(name) is layout]


def layout_of(name: str) -> Layout:
    return IDX if name == DIGITS else DATASETS[name].layout


def dataset(name: str) -> Dataset:
    """The data set called ``name``. Another name is an error that lists the known ones."""
    if name == DIGITS:
        raise RankupError(
            "nothing-to-fetch",
            "the digits come with rankup: there is nothing to fetch",
            hint="use --data digits",
        )
    if name not in DATASETS:
        raise RankupError(
            "unknown-data",
            f"unknown data set {name!r}{did_you_mean(name, [DIGITS, *DATASETS])}",
            hint=f"use one of {', '.join([DIGITS, *DATASETS])}, or a directory with the files to train on",
        )
    return DATASETS[name]
