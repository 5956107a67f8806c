"""The known data sets: their files with checksums, their mirrors, and the directory in which Debian installs them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
    size: int
    sha256: str
    content_sha256: str


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


# torchvision publishes these SHA-256 sums with its MD5 sums. Debian's Fashion-MNIST with the gzip headers of the
# originals gives both. Several projects publish MNIST's unpacked sums, and the sum and size of CIFAR-100's archive.
DATASETS: dict[str, Dataset] = {
    "mnist": Dataset(
        name="mnist",
        summary="handwritten digits: 60,000 images for training and 10,000 for test, 28×28, 10 classes",
        mirrors=(
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
        ),
        files=(
            RemoteFile(
                TRAIN_IMAGES,
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            RemoteFile(
                TRAIN_LABELS,
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            RemoteFile(
                TEST_IMAGES,
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            RemoteFile(
                TEST_LABELS,
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
    ),
    "fashion-mnist": Dataset(
        name="fashion-mnist",
        summary="clothes, by Zalando: 60,000 images for training and 10,000 for test, 28×28, 10 classes",
        mirrors=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            # The authors' bucket; its better-known website address has no TLS.
            "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
        ),
        files=(
            RemoteFile(
                TRAIN_IMAGES,
                26_421_880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            RemoteFile(
                TRAIN_LABELS,
                29_515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            ),
            RemoteFile(
                TEST_IMAGES,
                4_422_102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            ),
            RemoteFile(
                TEST_LABELS,
                5_148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        ),
        debian_package="dataset-fashion-mnist",
        debian_folder=Path("/usr/share/datasets/fashion-mnist"),
    ),
    "cifar100": Dataset(
        name="cifar100",
        summary="small photographs: 50,000 for training and 10,000 for test, 3×32×32, 100 classes",
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        files=(
            RemoteFile(
                CIFAR_TRAIN, 0, "", "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"
            ),
            RemoteFile(CIFAR_TEST, 0, "", "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
        ),
        layout=CIFAR100_BINARY,
        # The binary version: the other one is a pickle, and reading a pickle runs code.
        archive=RemoteFile(
            "cifar-100-binary.tar",
            168_513_733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            "",
        ),
    ),
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
