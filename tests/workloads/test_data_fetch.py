"""Downloads, from servers on this machine that behave, lie, break off, or are not there."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import socket
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankup.core.shell import start
from rankup.errors import RankupError
from rankup.workloads.data import fetch as fetch_module
from rankup.workloads.data.catalog import DATASETS, FILES, Dataset, RemoteFile
from rankup.workloads.data.fetch import fetch

CONTENT = {name: name.encode() * 40 for name in FILES}
PACKED = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in CONTENT.items()}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


TINY = Dataset(
    "tiny",
    "for tests",
    mirrors=(),
    files=tuple(
        RemoteFile(name, len(PACKED[f"{name}.gz"]), sha256(PACKED[f"{name}.gz"]), sha256(content))
        for name, content in CONTENT.items()
    ),
    debian_package="dataset-tiny",
)


class Mirror(http.server.ThreadingHTTPServer):
    """Serves ``files``; ``cut`` bytes are announced and never sent; ``asked`` records each request."""

    def __init__(self, files: dict[str, bytes], cut: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cut, self.asked = files, cut, list[str]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.server.asked.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        data = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) - self.server.cut])

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def serve() -> Iterator[type]:
    """``serve(files, cut=…)`` is a mirror that ends with the test."""
    running: list[tuple[Mirror, threading.Thread]] = []

    def start_mirror(files: dict[str, bytes] = PACKED, cut: int = 0) -> Mirror:
        mirror = Mirror(files, cut)
        thread = threading.Thread(target=mirror.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        running.append((mirror, thread))
        return mirror

    yield start_mirror  # type: ignore[misc]
    for mirror, thread in running:
        mirror.shutdown()
        thread.join()
        mirror.server_close()


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set of four small files, and no proxy between a test and its own machine."""
    monkeypatch.setitem(DATASETS, "tiny", TINY)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def nobody() -> str:
    """The URL of a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


def contents(directory: Path) -> dict[str, bytes]:
    """What lies in ``directory``, the lock aside."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != ".fetch.lock"}


def test_a_good_download_leaves_the_four_files_and_nothing_else(serve, tmp_path):
    seen = []
    fetched = fetch("tiny", tmp_path / "new", mirrors=[serve().url], progress=lambda *step: seen.append(step))
    assert fetched == list(PACKED)
    assert contents(tmp_path / "new") == PACKED
    assert seen == [(name, len(data), len(data)) for name, data in PACKED.items()]


def test_files_that_are_there_and_right_are_not_fetched_again(serve, tmp_path):
    mirror = serve()
    plain, repacked, original, missing = TINY.files
    (tmp_path / plain.name).write_bytes(CONTENT[plain.name])
    (tmp_path / f"{repacked.name}.gz").write_bytes(gzip.compress(CONTENT[repacked.name], mtime=99))
    (tmp_path / f"{original.name}.gz").write_bytes(PACKED[f"{original.name}.gz"])
    assert fetch("tiny", tmp_path, mirrors=[mirror.url]) == [f"{missing.name}.gz"]
    assert mirror.asked == [f"{missing.name}.gz"]


def test_a_complete_directory_needs_no_network_and_no_lock(tmp_path, nobody):
    for name, data in PACKED.items():
        (tmp_path / name).write_bytes(data)
    assert fetch("tiny", tmp_path, mirrors=[nobody]) == []
    assert contents(tmp_path) == PACKED
    assert not (tmp_path / ".fetch.lock").exists()


def test_a_wrong_file_that_is_there_is_named_and_kept(serve, tmp_path):
    name = f"{TINY.files[2].name}.gz"
    (tmp_path / name).write_bytes(b"somebody's own")
    with pytest.raises(RankupError, match=name) as caught:
        fetch("tiny", tmp_path, mirrors=[serve().url])
    assert caught.value.code == "wrong-file"
    assert sha256(b"somebody's own") in caught.value.context
    assert contents(tmp_path) == {name: b"somebody's own"}


def test_a_wrong_checksum_names_both_sums_and_the_mirror_and_writes_nothing(serve, tmp_path):
    first = FILES[0] + ".gz"
    wrong = b"x" * len(PACKED[first])
    mirror = serve({**PACKED, first: wrong})
    with pytest.raises(RankupError, match="wrong checksum") as caught:
        fetch("tiny", tmp_path, mirrors=[mirror.url])
    assert (caught.value.code, caught.value.exit_code) == ("wrong-checksum", 1)
    assert all(part in caught.value.context for part in (sha256(wrong), TINY.files[0].sha256, mirror.url))
    assert contents(tmp_path) == {}


def test_a_body_without_end_is_not_read_to_its_end(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_module, "_CHUNK", 64)
    seen = []
    mirror = serve({FILES[0] + ".gz": bytes(1_000_000)})
    with pytest.raises(RankupError, match="wrong checksum"):
        fetch("tiny", tmp_path, mirrors=[mirror.url], progress=lambda *step: seen.append(step))
    assert seen[-1][1] <= TINY.files[0].size + 64


def test_a_body_cut_short_is_told_and_nothing_is_written(serve, tmp_path):
    with pytest.raises(RankupError, match="no mirror served it") as caught:
        fetch("tiny", tmp_path, mirrors=[serve(cut=5).url])
    size = TINY.files[0].size
    assert f"ended after {size - 5} of {size} bytes" in caught.value.context
    assert contents(tmp_path) == {}


def test_without_a_network_the_error_says_what_to_do(tmp_path, nobody):
    with pytest.raises(RankupError) as caught:
        fetch("tiny", tmp_path, mirrors=[nobody])
    assert (caught.value.code, caught.value.exit_code) == ("download-failed", 1)
    assert nobody in caught.value.context and "refused" in caught.value.context
    for advice in ("rankup data fetch tiny DIR", "login node", "apt install dataset-tiny", "--data DIR"):
        assert advice in caught.value.hint
    assert contents(tmp_path) == {}


def test_a_silent_mirror_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_module, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(RankupError) as caught:
        fetch("tiny", tmp_path, mirrors=[f"http://127.0.0.1:{silent.getsockname()[1]}/"])
    assert "timed out" in caught.value.context


def test_the_next_mirror_serves_what_the_ones_before_do_not(serve, tmp_path, nobody):
    empty, broken = serve({}), serve(cut=1)
    wrong = serve(dict.fromkeys(PACKED, b"<html>log in first</html>"))
    good = serve()
    fetch("tiny", tmp_path, mirrors=[nobody, empty.url, broken.url, wrong.url, good.url])
    assert contents(tmp_path) == PACKED
    assert empty.asked == broken.asked == wrong.asked == good.asked == list(PACKED)


def test_every_mirrors_failure_is_told(serve, tmp_path, nobody):
    with pytest.raises(RankupError) as caught:
        fetch("tiny", tmp_path, mirrors=[nobody, serve({}).url, "nonsense"])
    assert all(part in caught.value.context for part in ("refused", "HTTP 404", "unknown url type"))


def test_a_failure_half_way_keeps_the_whole_files_and_goes_on_later(serve, tmp_path):
    half = dict(list(PACKED.items())[:2])
    with pytest.raises(RankupError, match=FILES[2]):
        fetch("tiny", tmp_path, mirrors=[serve(half).url])
    assert contents(tmp_path) == half
    assert fetch("tiny", tmp_path, mirrors=[serve().url]) == list(PACKED)[2:]


def test_a_disk_that_is_full_is_an_error_and_leaves_nothing(serve, tmp_path, monkeypatch):
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetch_module, "write_atomic", full)
    with pytest.raises(RankupError, match="No space left") as caught:
        fetch("tiny", tmp_path, mirrors=[serve().url])
    assert caught.value.code == "cannot-write-data"
    assert contents(tmp_path) == {}


def test_a_file_system_without_locks_does_not_stop_a_download(serve, tmp_path, monkeypatch):
    def no_locks(path: Path) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fetch_module, "locked", no_locks)
    fetch("tiny", tmp_path, mirrors=[serve().url])
    assert contents(tmp_path) == PACKED


def test_two_processes_at_once_download_each_file_once(serve, tmp_path):
    mirror = serve()
    script = tmp_path / "fetch_tiny.py"
    script.write_text(
        "import sys, pathlib\n"
        "from rankup.workloads.data.catalog import DATASETS, Dataset, Layout, RemoteFile\n"
        "from rankup.workloads.data.fetch import fetch\n"
        f"DATASETS['tiny'] = {TINY!r}\n"
        "fetch('tiny', pathlib.Path(sys.argv[1]), mirrors=[sys.argv[2]])\n"
    )
    command = [sys.executable, str(script), str(tmp_path / "data"), mirror.url]
    processes = [start(command) for _ in range(2)]
    assert [process.wait(timeout=240) for process in processes] == [0, 0]
    assert sorted(mirror.asked) == sorted(PACKED)
    assert contents(tmp_path / "data") == PACKED


@pytest.mark.parametrize(("name", "code"), [("digits", "nothing-to-fetch"), ("mnsit", "unknown-data")])
def test_what_cannot_be_fetched_is_told_before_anything_is_made(tmp_path, name, code):
    with pytest.raises(RankupError) as caught:
        fetch(name, tmp_path / "new")
    assert caught.value.code == code
    assert not (tmp_path / "new").exists()


def test_the_catalog_is_whole_and_its_mirrors_are_encrypted():
    for known in (DATASETS["mnist"], DATASETS["fashion-mnist"]):
        assert [file.name for file in known.files] == list(FILES)
        assert all(
            len(bytes.fromhex(f.sha256)) == len(bytes.fromhex(f.content_sha256)) == 32 for f in known.files
        )
        assert all(mirror.startswith("https://") and mirror.endswith("/") for mirror in known.mirrors)


@pytest.mark.skipif(
    not (DATASETS["fashion-mnist"].debian_folder or Path()).is_dir(),
    reason="Debian's dataset-fashion-mnist is not installed",
)
def test_debians_files_pass_for_the_originals(nobody):
    folder = DATASETS["fashion-mnist"].debian_folder
    assert folder is not None and fetch("fashion-mnist", folder, mirrors=[nobody]) == []


def packed_archive(members: dict[str, bytes]) -> bytes:
    """A ``.tar.gz`` that unpacks to a folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"folder/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def archived(monkeypatch) -> dict[str, bytes]:
    """A data set called ``packed``, of two files in an archive with a third; what its mirrors serve."""
    members = {"train.bin": b"train" * 50, "test.bin": b"test" * 50, "readme.txt": b"hello"}
    data = packed_archive(members)
    files = tuple(RemoteFile(name, 0, "", sha256(members[name])) for name in ("train.bin", "test.bin"))
    archive = RemoteFile("packed.tar", len(data), sha256(data), "")
    monkeypatch.setitem(DATASETS, "packed", Dataset("packed", "for tests", (), files, archive=archive))
    return {"packed.tar.gz": data}


def test_an_archive_is_unpacked_to_the_files_that_count(serve, tmp_path, archived):
    assert fetch("packed", tmp_path, mirrors=[serve(archived).url]) == ["train.bin", "test.bin"]
    assert contents(tmp_path) == {"train.bin": b"train" * 50, "test.bin": b"test" * 50}
    assert fetch("packed", tmp_path, mirrors=[]) == []


def test_a_file_that_is_missing_comes_from_the_archive_and_the_other_is_kept(serve, tmp_path, archived):
    (tmp_path / "train.bin.gz").write_bytes(gzip.compress(b"train" * 50))
    assert fetch("packed", tmp_path, mirrors=[serve(archived).url]) == ["test.bin"]
    assert sorted(contents(tmp_path)) == ["test.bin", "train.bin.gz"]


def test_an_archive_with_a_wrong_checksum_is_never_opened(serve, tmp_path, archived):
    other = packed_archive({"train.bin": b"x", "test.bin": b"y"})
    with pytest.raises(
        RankupError, match=r"packed.tar.gz of packed: the downloaded file has a wrong checksum"
    ):
        fetch("packed", tmp_path, mirrors=[serve({"packed.tar.gz": other}).url])
    assert contents(tmp_path) == {}


def test_a_wrong_file_in_place_of_an_archives_is_named_and_kept(serve, tmp_path, archived):
    (tmp_path / "test.bin").write_bytes(b"somebody's own")
    with pytest.raises(RankupError, match=r"is not the test.bin of packed") as caught:
        fetch("packed", tmp_path, mirrors=[serve(archived).url])
    assert sha256(b"test" * 50) in caught.value.context and "unpacked" not in caught.value.context
