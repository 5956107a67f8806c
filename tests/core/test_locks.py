"""One process at a time."""

import os
import subprocess
import sys

import pytest

from rankup.core.locks import only_one
from rankup.errors import RankupError

HOLD = """
import sys
from pathlib import Path
from rankup.core.locks import only_one
with only_one(Path(sys.argv[1]), code="in-use", busy="", hint=""):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_process_gets_an_error_that_names_the_first(tmp_path):
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        with (
            pytest.raises(RankupError) as caught,
            only_one(path, code="in-use", busy="the study is in use", hint="wait"),
        ):
            pass
        other.kill()
    assert caught.value.code == "in-use" and caught.value.hint == "wait"
    assert caught.value.message.startswith(f"the study is in use: process {other.pid} on ")
    with only_one(path, code="in-use", busy="", hint=""):  # the kernel has freed it
        assert path.read_text().startswith(f"process {os.getpid()} on ")


def test_it_is_free_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), only_one(tmp_path / "lock", code="in-use", busy="", hint=""):
        _ = 1 / 0
    with only_one(tmp_path / "lock", code="in-use", busy="", hint=""):
        pass
