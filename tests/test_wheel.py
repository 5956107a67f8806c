"""What is installed is what was tested: the wheel holds the package whole, and works where nothing else of ours is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pages import PAGES, ROOT, SCRIPTS, missing, run_page


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (built,) = folder.glob("rankup-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory) -> str:
    """The Python of a fresh environment: rankup is installed from the wheel, its dependencies are those of ours.

    A line in a .pth file is a folder to look in after the environment's own. So .pth files of that folder do not count,
    such as the one of an editable rankup.
    """
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    found = str(folder / "bin" / "python")
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        found,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
    ]
    subprocess.run(install, check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site / "dependencies.pth").write_text("\n".join(others))
    return found


def test_the_wheel_holds_every_file_of_the_package(wheel: Path):
    held = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "rankup").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert wanted <= held
    assert {"rankup/py.typed", "rankup/workloads/data/digits/train-images-idx3-ubyte.gz"} <= held


def test_the_tutorials_first_page_runs_from_the_wheel(python: str, tmp_path: Path):
    folder = tmp_path / "tutorial"
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    where = subprocess.run(
        [python, "-c", "import rankup; print(rankup.__file__)"], cwd=folder, capture_output=True, text=True
    )
    assert where.stdout.startswith(str(Path(python).parents[1])), where.stderr
    for command, code, printed in run_page(PAGES[0], folder, python=python):
        assert code == command.code, f"{command.line}: code {code}\n{printed}"
        assert not missing(command.shown, printed), f"{command.line} printed\n{printed}"


def test_its_command_line_finds_its_profiles_and_the_parts_of_a_script(python: str, tmp_path: Path):
    (tmp_path / "train.py").touch()
    rankup = Path(python).parent / "rankup"
    script = subprocess.run(
        [rankup, "render", "--site", "olivia", "--account", "a", "--time", "1h", "train.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert script.returncode == 0, script.stderr
    subprocess.run(["bash", "-n"], input=script.stdout, text=True, check=True)
    assert "#SBATCH --account=a" in script.stdout
