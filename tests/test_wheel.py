"""What is installed is what was tested: the wheel holds the package whole, its data and its types."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def test_the_wheel_holds_every_file_of_the_package(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=REPOSITORY, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("rankup-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    source = REPOSITORY / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "rankup").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert wanted <= held
    assert {"rankup/py.typed", "rankup/workloads/data/digits/train-images-idx3-ubyte.gz"} <= held
