"""``rankup data`` as a user meets it."""

from __future__ import annotations

import hashlib
import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from commands import calling
from rankup.core.shell import run
from rankup.workloads.data.catalog import DATASETS, FILES, Dataset, RemoteFile

SHA256_OF_NOTHING = hashlib.sha256(b"").hexdigest()
EMPTY_FILES = tuple(RemoteFile(name, 0, SHA256_OF_NOTHING, SHA256_OF_NOTHING) for name in FILES)


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    """No Debian package, an empty cache, no mirrors, and data sets whose right files are empty."""
    for name in ("mnist", "fashion-mnist"):
        monkeypatch.setitem(DATASETS, name, Dataset(name, "for tests", mirrors=(), files=EMPTY_FILES))
    monkeypatch.setenv("RANKUP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def fill(folder: Path) -> Path:
    folder.mkdir()
    for name in FILES:
        (folder / f"{name}.gz").touch()
    return folder


call = calling("data")


def test_list_says_what_is_where_and_how_to_get_the_rest(capsys, tmp_path):
    folder = fill(tmp_path / "mnist")
    code, out, _ = call(capsys, "list")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert code == 0
    assert lines["digits"].endswith("digits")
    assert lines["mnist"].endswith(str(folder))
    assert "rankup data fetch fashion-mnist" in lines["fashion-mnist"]


def test_list_as_json_has_a_row_for_each_data_set(capsys, tmp_path):
    folder = fill(tmp_path / "mnist")
    code, out, _ = call(capsys, "list", "--json")
    paths = {row["name"]: row["path"] for row in json.loads(out)}
    assert code == 0
    assert paths.pop("digits").endswith("digits")
    assert paths == {"mnist": str(folder), "fashion-mnist": None, "cifar100": None}


def test_fetch_says_what_it_did_and_how_to_use_it(capsys, tmp_path):
    folder = fill(tmp_path / "here")
    code, out, _ = call(capsys, "fetch", "mnist", str(folder))
    assert code == 0
    assert f"0 of 4 files fetched, all verified, in {folder}" in out
    assert f"--data {folder}" in out


def test_what_was_fetched_is_for_the_workload_that_reads_it(capsys, tmp_path, monkeypatch):
    folder = tmp_path / "cifar"
    folder.mkdir()
    empty = RemoteFile("train.bin", 0, "", SHA256_OF_NOTHING)
    monkeypatch.setitem(DATASETS, "cifar100", replace(DATASETS["cifar100"], files=(empty,)))
    (folder / "train.bin").touch()
    code, out, _ = call(capsys, "fetch", "cifar100", str(folder))
    assert code == 0
    assert f"train on it: rankup train wideresnet-cifar100 --data {folder}" in out


def test_fetch_without_a_directory_goes_where_the_name_is_found(capsys, tmp_path):
    folder = fill(tmp_path / "mnist")
    code, out, _ = call(capsys, "fetch", "mnist", "--json")
    assert code == 0
    assert json.loads(out) == {"name": "mnist", "directory": str(folder), "fetched": []}


def test_fetch_without_a_network_is_one_clear_error(capsys, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    code, out, err = call(capsys, "fetch", "mnist", str(tmp_path / "new"), "--mirror", url)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: cannot download {FILES[0]}.gz of mnist")
    assert url in err and "login node" in err and "Traceback" not in err


def test_an_error_as_json_is_one_object(capsys, tmp_path):
    code, out, _ = call(capsys, "fetch", "fasion-mnist", str(tmp_path / "new"), "--json")
    assert code == 2
    assert json.loads(out)["error"] == "unknown-data"


def test_a_login_node_without_torch_can_list_and_fetch():
    code = "import sys; sys.modules['torch'] = None\nfrom rankup.cli.app import main; main(['data', 'list'])"
    done = run([sys.executable, "-c", code])
    assert (done.code, done.err) == (0, "")
    assert "fashion-mnist" in done.out
