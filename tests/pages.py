"""Pages of the documentation that are run: the commands of a page, what it shows, and what they print.

A line after ``$`` is run by bash, and ends with code 0 or with the one in its comment, ``# ends with 75``. Each line
below it has to be among what it printed; ``…`` in it stands for anything.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import ranks

ROOT = Path(__file__).parents[1]
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


def run_page(
    page: Path, folder: Path, instead: Mapping[str, str] | None = None, python: str | None = None
) -> list[tuple[Command, int, str]]:
    """(command, exit code, what it printed) for each; all in one bash, since variables and jobs last for a page.

    ``instead`` gives a command to run in place of the one shown; ``python`` is that of the environment to run them in.
    """
    found, port, instead = commands(page), str(ranks.free_port()), instead or {}
    lines = (f'{instead.get(one.line, one.line)}\necho "{MARK} $?"' for one in found)
    script = "\n".join(lines).replace(PORT, port)
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RANKUP_", "SLURM_", "PBS_", "OMP_", "PYTHONPATH"))
    }
    clean["PATH"] = f"{Path(python or sys.executable).parent}{os.pathsep}{clean['PATH']}"
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
            bash.wait(timeout=600)
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
