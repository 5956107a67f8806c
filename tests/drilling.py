"""Drills on a lab of SLURM or PBS: an operator who loses nodes, and where the answers go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def keep(answer: dict[str, Any], name: str) -> None:
    """In benchmarks/results/, without paths of the machine."""
    kept = {key: value for key, value in answer.items() if key not in ("folder", "rows", "code")}
    for finding in [*kept["checked"], *(each for row in kept["failures"] for each in row["changes"])]:
        finding["place"] = finding["place"].rpartition("/")[2]
    (RESULTS / f"drill-{name}.json").write_text(json.dumps(kept, indent=1) + "\n")


@contextmanager
def losing_nodes(
    folder: Path, lose: Callable[[str], None], bring_back: Callable[[str], None]
) -> Iterator[list[str]]:
    """The options of an operator. A file in ``folder`` asks that a node loses its power, another one that it is
    switched on again."""
    asked = folder / "lose", folder / "return"
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            for path, act in zip(asked, (lose, bring_back), strict=True):
                if path.exists() and (node := path.read_text().strip()):
                    act(node)
                    path.unlink()

    watching = threading.Thread(target=watch)
    watching.start()
    until_gone = "echo {{node}} >{0}; while [ -e {0} ]; do sleep 0.2; done"
    try:
        yield [
            word
            for option, path in zip(("--lose-node", "--return-node"), asked, strict=True)
            for word in (option, f"bash -c '{until_gone.format(path)}'")
        ]
    finally:
        over.set()
        watching.join()


class Here:
    """``rankup drill --here`` in ``folder``, with its lab: the folder of its state, and all its processes. It is up
    when ``daemon`` runs on a node."""

    def __init__(self, folder: Path, script: str, daemon: str, *options: str) -> None:
        self.drill = subprocess.Popen(
            [sys.executable, "-m", "rankup", "drill", "--here", "--json", "--failures", "node-lost", *options, script],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"},
        )  # fmt: skip
        self.hosts: list[psutil.Process] = []
        deadline = time.monotonic() + 120
        while daemon not in {host.name() for host in self.hosts if host.is_running()}:
            assert self.drill.poll() is None, self.drill.communicate()
            assert time.monotonic() < deadline, "no lab comes up"
            self.hosts = psutil.Process(self.drill.pid).children(recursive=True)
            time.sleep(0.2)
        self.state = next(Path(each.cmdline()[-1]) for each in self.hosts if "sweeper" in each.cmdline())
        assert self.state.is_dir()

    def nothing_is_left(self) -> None:
        _, alive = psutil.wait_procs(self.hosts, timeout=240)
        assert alive == []
        assert not self.state.exists()
        assert str(self.state) not in Path("/proc/self/mounts").read_text()
        named = [each.info for each in psutil.process_iter(["cmdline"]) if str(self.state) in str(each.info)]
        assert named == []

    def trains(self, folder: Path) -> None:
        """Wait until the job trains."""
        deadline = time.monotonic() + 120
        while not any(
            trace.stat().st_size for trace in folder.glob("runs/*/*/uninterrupted/attempts/1/rank-0.jsonl")
        ):
            assert time.monotonic() < deadline and self.drill.poll() is None
            time.sleep(0.1)
        self.hosts = psutil.Process(self.drill.pid).children(recursive=True)
        assert any("train.py" in each.cmdline() for each in self.hosts)
