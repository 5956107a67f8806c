"""Where data is looked for, and what is said when it is nowhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rankup.core.shell import run
from rankup.errors import RankupError
from rankup.workloads.data import places
from rankup.workloads.data.catalog import DATASETS, DIGITS_FOLDER, FILES, Dataset
from rankup.workloads.data.places import find_files, find_or_fetch, home, is_present, locate


@pytest.fixture
def debian(monkeypatch, tmp_path) -> Path:
    """A data set called ``tiny`` that Debian would install, on a machine that has it nowhere yet."""
    folder = tmp_path / "usr"
    tiny = Dataset("tiny", "for tests", mirrors=(), files=(), debian_folder=folder)
    monkeypatch.setitem(DATASETS, "tiny", tiny)
    monkeypatch.setenv("RANKUP_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def fill(folder: Path, files: tuple[str, ...] = FILES) -> Path:
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).touch()
    return folder


def test_a_users_directory_comes_before_debians_and_that_before_the_cache(debian, tmp_path):
    assert locate("tiny") is None
    for folder in (tmp_path / "cache/rankup/data/tiny", debian, tmp_path / "mine/tiny"):
        fill(folder)
        assert locate("tiny") == folder


def test_an_incomplete_directory_is_passed_over(debian, tmp_path):
    fill(tmp_path / "mine/tiny", FILES[:3])
    assert locate("tiny") is None
    fill(debian)
    assert locate("tiny") == debian


def test_the_cache_is_below_the_home_directory_unless_the_environment_says_otherwise(tmp_path):
    assert home("mnist", {}) == Path.home() / ".cache/rankup/data/mnist"
    assert home("mnist", {"XDG_CACHE_HOME": "/c"}) == Path("/c/rankup/data/mnist")
    assert home("mnist", {"XDG_CACHE_HOME": "/c", "RANKUP_DATA": "/d"}) == Path("/d/mnist")


def test_what_is_nowhere_is_fetched_into_its_home(debian, tmp_path, monkeypatch):
    monkeypatch.setattr(places, "fetch", lambda name, directory, progress: fill(directory))
    assert not is_present("tiny")
    assert find_or_fetch("tiny") == tmp_path / "mine/tiny"
    assert is_present("tiny")


def test_what_is_there_is_not_fetched(debian, monkeypatch):
    monkeypatch.setattr(places, "fetch", lambda *_, **__: pytest.fail("it is there"))
    fill(debian)
    assert find_or_fetch("tiny") == debian


def test_digits_and_directories_need_no_download(tmp_path):
    assert is_present("digits") and locate("digits") == DIGITS_FOLDER
    assert is_present(str(tmp_path))


def test_a_mistyped_name_is_answered_with_the_right_one(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RankupError, match="did you mean 'fashion-mnist'") as caught:
        find_or_fetch("fasion-mnist")
    assert caught.value.code == "unknown-data"
    assert "digits" in caught.value.hint


@pytest.mark.parametrize("name", ["absent", "file"])
def test_what_is_no_directory_is_an_error_that_names_the_flag(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(RankupError, match="is not a directory") as caught:
        find_files(str(tmp_path / name))
    assert "--data" in caught.value.context


def test_a_path_that_the_system_refuses_is_an_error_without_traceback(tmp_path):
    with pytest.raises(RankupError, match="File name too long"):
        find_files(str(tmp_path / ("x" * 300)))


def test_nothing_here_loads_torch_before_tensors_are_made():
    code = "import sys, rankup.workloads.data as d; d.is_present('digits'); print('torch' in sys.modules)"
    assert run([sys.executable, "-c", code]).out == "False\n"
