"""What is installed is what was tested: the wheel holds the package whole, and works where nothing else of ours is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from pages import PAGES, ROOT, SCRIPTS, missing, run_page

# Each has the wheel built, and most have it installed.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """What would be uploaded: the source, and the wheel that is built from it alone. Without a network."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (built,) = dist.glob("rankup-*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if re.fullmatch(r"rankup-.*/METADATA", name)]
        return message_from_bytes(archive.read(name))


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


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("rankup-")}
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "rankup").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert held == wanted
    assert {"rankup/py.typed", "rankup/workloads/data/digits/train-images-idx3-ubyte.gz"} <= held


def test_the_package_index_takes_both_files_and_shows_the_readme(dist: Path):
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir()], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout


def test_the_index_shows_where_things_are_and_no_link_that_leads_nowhere_there(metadata: Message):
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} == {
        url.partition(",")[0] for url in metadata.get_all("Project-URL", [])
    }
    page = str(metadata.get_payload())
    targets = re.findall(r"\]\(([^)]*)\)", page) + re.findall(r'src(?:set)?="([^"]*)"', page)
    links = r'\]\(|src(?:set)?="'
    assert len(targets) == len(re.findall(links, (ROOT / "README.md").read_text())) > 20
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


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
        [rankup, "render", "--site", "olivia", "--container", "", "--account", "a", "--time", "1h", "train.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert script.returncode == 0, script.stderr
    subprocess.run(["bash", "-n"], input=script.stdout, text=True, check=True)
    assert "#SBATCH --account=a" in script.stdout
