"""The tutorial's pages do what they say: each page's commands are run in its order, and print what it shows.

A line behind ``$`` is run by bash, and ends with code 0 or with the one in its comment, ``# ends with 75``. Each line
below it has to be among what it printed; ``…`` in it stands for anything.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flaky import aborts_at_exit

pytestmark = pytest.mark.usefixtures("warm_python")  # the folder that is first on PATH
ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "tutorial"
PAGES = sorted((ROOT / "docs" / "tutorial").glob("[0-9]-*.md"))
PORT = "29400"  # in the pages; somebody else may have it here
MARK = "@@ended"


@dataclass
class Command:
    line: str
    shown: list[str] = field(default_factory=list)

    @property
    def code(self) -> int:
        stated = re.search(r"# ends with (\d+)$", self.line)
        return int(stated[1]) if stated else 0


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.M | re.S)


def commands(page: Path) -> list[Command]:
    found: list[Command] = []
    for line in "".join(blocks(page, "console")).splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:]))
        else:
            found[-1].shown.append(line)
    return found


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_page(page: Path, folder: Path) -> list[tuple[Command, int, str]]:
    """(command, exit code, what it printed) for each; all in one bash, since variables and jobs last for a page."""
    found, port = commands(page), free_port()
    script = "\n".join(f'{one.line}\necho "{MARK} $?"' for one in found).replace(PORT, port)
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RANKUP_", "SLURM_", "PBS_", "OMP_"))
    }
    clean["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    log = folder / "page.log"
    with log.open("w") as out:
        # The background commands' output is in order with the rest, since all write to the end of one file.
        bash = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            bash.wait(timeout=150)
        finally:
            if bash.poll() is None:
                os.killpg(bash.pid, signal.SIGKILL)
                bash.wait()
    *printed, _ = re.split(rf"^{MARK} (\d+)\n", log.read_text(), flags=re.M)
    return [
        (one, int(code), text) for one, text, code in zip(found, printed[::2], printed[1::2], strict=True)
    ]


def missing(shown: list[str], printed: str) -> list[str]:
    """The lines of the page that were not printed."""
    patterns = {line: ".*".join(map(re.escape, line.split("…"))) for line in shown if line.strip(" …")}
    return [line for line, pattern in patterns.items() if not re.search(f"^{pattern}$", printed, re.M)]


def test_the_pages_are_there():
    assert [page.name[0] for page in PAGES] == ["1", "2", "3", "4", "5"]
    assert all(commands(page) for page in PAGES)


@aborts_at_exit
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_commands_do_what_it_shows(tmp_path, page):
    folder = tmp_path / "tutorial"
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    for command, code, printed in run_page(page, folder):
        assert code == command.code, f"{command.line}: code {code}\n{printed}"
        assert not missing(command.shown, printed), f"{command.line} printed\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_it_shows_is_that_of_the_scripts(page):
    scripts = [path.read_text() for path in SCRIPTS.glob("*.py")]
    for code in blocks(page, "python"):
        assert any(textwrap.dedent(code) in script for script in scripts), code


def test_the_index_links_every_page():
    index = (ROOT / "docs" / "tutorial" / "README.md").read_text()
    assert [page.name for page in PAGES] == re.findall(r"\((\d-[a-z0-9-]+\.md)\)", index)


def test_a_line_that_was_not_printed_is_missed():
    printed = "[rank 0] weights 621.785732\nstep-50        good\n"
    assert missing(["…", "step-… good", "[rank 0] weights 621.…"], printed) == []
    assert missing(["weights 621.785732", "step-… damaged"], printed) == [
        "weights 621.785732",
        "step-… damaged",
    ]
