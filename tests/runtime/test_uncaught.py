"""An error that ends a script shows the script's lines alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("warm_python")

SCRIPT = """
import rankup

def main():
    run = rankup.init(device="cpu")
    {line}

main()
"""


def said(folder: Path, line: str, **env: str) -> str:
    script = folder / "train.py"
    script.write_text(SCRIPT.format(line=line))
    words = [sys.executable, str(script)]
    done = subprocess.run(words, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr


def test_an_error_of_ours_names_the_scripts_lines_and_none_of_the_library(tmp_path: Path):
    text = said(tmp_path, "rankup.init(device='gpu')")
    assert "train.py" in text and "line 6, in main" in text and "hint:" in text
    assert str(Path("rankup", "runtime")) not in text


def test_all_lines_are_shown_when_debugging(tmp_path: Path):
    assert str(Path("rankup", "runtime")) in said(tmp_path, "rankup.init(device='gpu')", RANKUP_DEBUG="1")


def test_another_error_is_shown_as_ever(tmp_path: Path):
    text = said(tmp_path, "run.sum([][0])")
    assert "line 6, in main" in text and "IndexError: list index out of range" in text


def test_an_error_that_another_rank_tells_is_one_line(tmp_path: Path):
    error = "rankup.errors.RankupError('bad', 'it is bad', hint='do not').as_dict()"
    text = said(tmp_path, f"raise rankup.errors.RankupError.of_rank(3, {error})")
    assert text == "RankupError: it is bad [bad] (rank 3 says more)\n"
