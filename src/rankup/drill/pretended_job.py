"""A job of the pretended scheduler: the sandbox of ``rankup rehearse --for-real`` in which it runs, and how it ends."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankup.check.facts.job.request import Request
from rankup.core import shell
from rankup.errors import RankupError
from rankup.rehearse.allocation import Allocation
from rankup.rehearse.rehearse import Options, prepare, start
from rankup.rehearse.scenario import Scenario
from rankup.rehearse.stand_ins.context import GROUP
from rankup.rehearse.supervision import descendants

KILL_WAIT_S = 10.0  # between SIGTERM and SIGKILL, for a job that is ended, and for what its script leaves
PENDING, RUNNING, COMPLETED, FAILED = "PENDING", "RUNNING", "COMPLETED", "FAILED"
TIMEOUT, CANCELLED = "TIMEOUT", "CANCELLED"
OVER = (COMPLETED, FAILED, TIMEOUT, CANCELLED)
_PACKAGES = Path(__file__).parents[2]


@dataclass
class PretendedJob:
    """``text``: of its script, with the options of its submit; ``env``: of its submit; ``limit``: in seconds."""

    number: str
    text: str
    folder: Path
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    request: Request
    allocation: Allocation
    limit: int
    state: str = PENDING
    restarts: int = 0
    code: int = 0
    changed: frozenset[str] = frozenset()  # what it has written that is gone
    _process: shell.Process[bytes] | None = None
    _scratch: Path = Path()
    _began: float = 0.0
    _then: str = ""  # its state when it has been ended; "": it ends by itself
    _killed_at: float = 0.0
    _warned: bool = False

    @property
    def id(self) -> str:
        return self.number if self.allocation.scheduler == "slurm" else f"{self.number}.head"

    @property
    def name(self) -> str:
        return self.allocation.job_name

    @property
    def may_requeue(self) -> bool:
        rerun = self.request.get("r")
        return self.request.get("no-requeue") is None and (rerun is None or rerun.value != "n")

    def begin(self, state: Path, asked: Path) -> None:
        """``state``: where its sandbox keeps its files; ``asked``: where its commands look for the scheduler."""
        self._scratch = Path(tempfile.mkdtemp(prefix=f"job-{self.number}-", dir=state))
        scenario = Scenario(
            self._scratch, self.folder, self.allocation, time=self.limit, started=time.time(), for_real=True,
            queue=str(asked), restarts=self.restarts, variables=self._variables(), python=sys.executable,
            source=str(_PACKAGES), user=getpass.getuser(), home=str(Path.home()),
        )  # fmt: skip
        options = Options(
            seconds=float("inf"), arguments=self.arguments, output=str(self._output()),
            writable=(str(self.folder.parent), str(asked)), grace=KILL_WAIT_S,
        )  # fmt: skip
        prepare(scenario, self.text, options, self.env, {})
        self.state, self._then, self._warned, self._began = RUNNING, "", False, time.monotonic()
        self._process = start(self._scratch)

    def attend(self) -> None:
        """What is due for a job that runs."""
        if self._process is None:
            return
        ran, warning = time.monotonic() - self._began, self._warning()
        if self._process.poll() is not None:
            self._has_ended()
        elif self._then:
            if time.monotonic() > self._killed_at:
                self.kill()
        elif ran > self.limit:
            self.end(TIMEOUT)
        elif warning is not None and not self._warned and ran > self.limit - warning[1]:
            self._warned = True
            self.send(warning[0], to=warning[2])

    def end(self, then: str) -> None:
        """SIGTERM now, SIGKILL later."""
        self._then, self._killed_at = then, time.monotonic() + KILL_WAIT_S
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """The process outside of the sandbox hears this, and waits until all inside have ended."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def send(self, number: int, *, to: str = "all") -> None:
        """To ``all`` its processes, its ``batch`` shell, or its ``steps``."""
        inside = descendants(self._process.pid)[1:] if self._process is not None else []
        for process in inside[:1] if to == "batch" else inside:
            with suppress(OSError):
                if to != "steps" or f"{GROUP}=".encode() in Path(f"/proc/{process}/environ").read_bytes():
                    os.kill(process, number)

    def _variables(self) -> dict[str, str]:
        """Those of its submit that a rehearsal would leave out, and what ``qsub -v`` names."""
        if self.allocation.scheduler == "slurm":
            own = [name for name in self.env if re.match(r"RANKUP_(?!REHEARSE)", name)]
            return {name: self.env[name] for name in own}
        given = self.request.get("v")
        pairs = [part.partition("=") for part in given.value.split(",")] if given is not None else []
        return {name: value if equals else self.env.get(name, "") for name, equals, value in pairs}

    def _warning(self) -> tuple[int, int, str] | None:
        """SLURM's --signal: which one, how many seconds before the time limit, and to whom."""
        directive = self.request.get("signal")
        found = re.match(r"(?:(\w):)?(\w+)(?:@(\d+))?$", directive.value) if directive is not None else None
        if found is None:
            return None
        return signal_number(found[2]), int(found[3] or 60), "batch" if found[1] == "B" else "steps"

    def _output(self) -> Path:
        given = self.request.get("output", "o")
        name = given.value.rpartition(":")[2] if given is not None else ""
        usual = "slurm-%j.out" if self.allocation.scheduler == "slurm" else "%x.o%j"
        path = self.folder / name
        path = path / usual if not name or path.is_dir() else path
        task = self.allocation.array_task or "0"
        values = {"%j": self.number, "%A": self.number, "%a": task, "%x": self.name}
        return Path(re.sub("%[jAax]", lambda found: values[found[0]], str(path)))

    def _has_ended(self) -> None:
        result = self._scratch / "result.json"
        said: dict[str, Any] = {"code": None, "changed": []}
        error = self._scratch / "sandbox-error"
        if result.exists():
            said = json.loads(result.read_text())
        elif error.exists():
            raise RankupError(
                "sandbox-failed", "the sandbox could not be made", context=error.read_text(), exit_code=1
            )
        self.code, self._process = -signal.SIGKILL if said["code"] is None else said["code"], None
        self.changed |= {*said["changed"]}
        self.restarts += self._then == PENDING
        self.state = self._then or (FAILED if self.code else COMPLETED)


def signal_number(name: str) -> int:
    """Of ``10``, ``USR1`` or ``SIGUSR1``."""
    if name.isdigit():
        return int(name)
    try:
        return signal.Signals[f"SIG{name.removeprefix('SIG')}"]
    except KeyError:
        raise RankupError("bad-signal", f"there is no signal {name}") from None
