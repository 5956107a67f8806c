"""What a stand-in knows of its place."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rankup.core import shell
from rankup.rehearse import log
from rankup.rehearse.scenario import Scenario

HOST = "RANKUP_REHEARSE_HOST"
#: The launch to which a process belongs: "3/5" is the fifth, started by the third.
GROUP = "RANKUP_REHEARSE_GROUP"
PASS = "RANKUP_REHEARSE_PASS"  # the process id of a Python that may run
#: Variables of the rehearsal itself: no program shall be judged by them.
OWN = (HOST, GROUP, PASS, "BASH_ENV", "OLDPWD", "_", "SHLVL")


def _in_subshell() -> bool:
    """Whether a copy of a shell has started this process, and not the shell that reads the script."""
    try:
        parent = Path("/proc", str(os.getppid()))
        above = Path("/proc", parent.joinpath("stat").read_text().rpartition(") ")[2].split()[1])
        words = parent.joinpath("cmdline").read_bytes()
        return bool(words) and words == above.joinpath("cmdline").read_bytes()
    except (OSError, IndexError):
        return False


class Here:
    """The place of a running stand-in, and what it can do there."""

    def __init__(self, name: str, scratch: Path, args: Sequence[str]) -> None:
        self.name = name
        self.args = list(args)
        self.scenario = Scenario.load(scratch)
        self.env: dict[str, str] = dict(os.environ)
        self.host = self.env.get(HOST) or os.uname().nodename
        self.group = self.env.get(GROUP, "")
        # A shell without job control starts what stands before a & with this signal ignored. Of what a function starts
        # there it is not ignored; then nobody knows.
        self.background = signal.getsignal(signal.SIGINT) == signal.SIG_IGN or _in_subshell()
        try:
            self.cwd = Path.cwd()
        except OSError:
            self.cwd = Path("/")

    @property
    def job(self) -> Any:
        return self.scenario.allocation

    @property
    def gpus(self) -> int:
        """Those of this node that the job has."""
        job = self.scenario.allocation
        return dict(zip(job.hosts, job.gpus, strict=True)).get(self.host, 0)

    def record(self, kind: str, **values: Any) -> None:
        place = {"host": self.host, "group": self.group, "cwd": str(self.cwd), "name": self.name}
        log.append(self.scenario.log, kind, **{**place, **values})

    def ask_scheduler(self) -> int | None:
        """Have the scheduler do this command, if there is one that knows it: its exit code."""
        if not self.scenario.queue:
            return None
        path = Path(self.scenario.queue, f"{time.time_ns()}-{os.getpid()}")
        asked = {"argv": [self.name, *self.args], "folder": str(self.cwd), "env": self.env}
        path.with_suffix(".part").write_text(json.dumps(asked))
        path.with_suffix(".part").rename(path.with_suffix(".asked"))
        answer = path.with_suffix(".answer")
        while not answer.exists():
            time.sleep(0.02)
        code, out, err = json.loads(answer.read_text())
        print(out, end="", flush=True)
        print(err, end="", file=sys.stderr, flush=True)
        return None if code is None else int(code)

    def note(self, text: str, code: str = "noted") -> None:
        """Something that a reader of the rehearsal must know."""
        self.record("note", code=code, text=text)

    def launch(self, **values: Any) -> str:
        """Record that a launcher starts processes; returns the group that they belong to."""
        number = f"{os.getpid()}"
        group = f"{self.group}/{number}" if self.group else number
        self.record("launch", id=group, background=self.background, argv=[self.name, *self.args], **values)
        return group

    def start(
        self,
        argv: Sequence[str],
        *,
        host: str,
        env: Mapping[str, str],
        cwd: Path | str | None = None,
        **streams: Any,
    ) -> shell.Process[bytes]:
        """Start ``argv`` as a process of ``host``."""
        tool = [
            *stand_in_command(self.scenario),
            "on_host",
            str(self.scenario.scratch),
            host,
            str(cwd or self.cwd),
        ]
        return shell.start([*tool, *argv], env={**env, HOST: host}, die_with_parent=True, **streams)

    def real(self, name: str) -> str | None:
        """The real command of a name: the first on PATH that is not a stand-in."""
        own = str(self.scenario.bin)
        folders = self.env.get("PATH", os.defpath).split(os.pathsep)
        return shutil.which(name, path=os.pathsep.join(folder for folder in folders if folder != own))

    def run_real(self, name: str, args: Sequence[str] | None = None) -> NoReturn:
        """Become the real command."""
        path = self.real(name)
        if path is None:
            self.fail(f"{name}: command not found", 127)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execve(path, [name, *(self.args if args is None else args)], self.env)

    def complain(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def fail(self, text: str, code: int = 1) -> NoReturn:
        self.complain(text)
        raise SystemExit(code)


def stand_in_command(scenario: Scenario) -> list[str]:
    """The tokens that start a stand-in, up to its name."""
    code = (
        f"import sys; sys.path.insert(0, {scenario.source!r}); "
        "from rankup.rehearse.stand_ins.main import main; main(sys.argv[1:])"
    )
    return [scenario.python, "-I", "-S", "-B", "-c", code]
