"""This node's processes: start them, watch them, and see to it that none is left."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rankup.core import shell
from rankup.core.rundir import RunDir
from rankup.launchers.base import launcher_named
from rankup.run import separate_models
from rankup.run.environment import INIT_FILE
from rankup.run.failure import Exit, Logs, first_failure, left_early
from rankup.run.interrupts import Interrupts
from rankup.run.logs import Output
from rankup.run.process_cleanup import MARK, kill_processes
from rankup.run.sampling import sampled
from rankup.run.view import View
from rankup.spec.jobspec import JobSpec

if TYPE_CHECKING:  # most runs have none
    from rankup.run.terminal import TerminalOutput

_GUARD = Path(__file__).with_name("rank.py")
POLL = 0.05  # seconds
# How long ranks may run after one of them has failed, or after an interrupt: enough for a handler to write
# a few words, and well under the ten seconds after which people press Ctrl-C again.
GRACE = 2.0
# How long ranks that listen may take to save before the sender of SIGTERM kills us: SLURM waits 30 seconds.
SAVING = 25.0


@dataclass(frozen=True)
class NodeOutcome:
    """How this node's processes ended; ``code`` is the launcher's, ``failure`` the rank that failed first.

    ``left_early`` are the ranks that had ended with 0 before, if the failure is a consequence of that. ``logs``: where
    the ranks' output is; its ``spare`` is there only if the run directory could not take all of it.
    """

    code: int
    failure: Exit | None
    restarts: int
    launcher_log: Path
    logs: Logs
    left_early: Sequence[int] = ()


def run_node(
    spec: JobSpec,
    run: RunDir,
    env: Mapping[str, str],
    interrupts: Interrupts,
    view: View,
    *,
    terminal: bool,
    debug: bool,
    closed_input: bool = False,
) -> NodeOutcome:
    """Run this node's share in ``env`` (see ``for_processes``) to its end; nothing of it is alive afterwards."""
    suffix = f"-node-{spec.node_rank}" if spec.nodes > 1 else ""
    log = run.logs / f"torchrun{suffix}.err"
    output: Output | TerminalOutput
    spare = None
    if terminal := terminal and spec.launcher == "single":
        from rankup.run.terminal import TerminalOutput

        output = TerminalOutput(run.logs)
        process = output.start(spec.rank_command, env, spec.folder)
    else:
        # On this machine's own disk; a rank makes it that needs it.
        spare = Path(tempfile.gettempdir(), f"rankup-{secrets.token_hex(8)}")
        events = run.logs / f"events{suffix}.jsonl"
        alone = spec.world_size == 1
        output = Output(run.logs, events, view, spare=spare, alone=alone, chatter=log if debug else None)
        guard = (sys.executable, "-I", "-S", *map(str, (_GUARD, run.logs, events, spare, os.getpid())))
        with _opened(log) as chatter:
            process = shell.start(
                launcher_named(spec.launcher)(spec, run.path.name, guard),
                env=env,
                cwd=spec.folder,
                stdin=None if spec.launcher == "single" and not closed_input else shell.DEVNULL,
                stdout=chatter,
                stderr=chatter,
                # A session of its own: the terminal's Ctrl-C then reaches us alone, and we pass it on once.
                new_session=True,
                die_with_parent=True,
            )
    watch = _Watch(process, output, interrupts, spec, env[MARK], terminal)
    try:
        with sampled(run, env, wanted=spec.monitor):
            code = watch.until_end(run, view)
    finally:
        kill_processes(env[MARK])
        process.wait()
        output.finish()
        with contextlib.suppress(OSError):
            Path(env[INIT_FILE]).unlink()
    watch.say_who_trains_alone(run, view, ended=True)
    logs = Logs(run.logs, spare if spare is not None and spare.exists() else None)
    failure = first_failure(output.exits, logs)
    early = left_early(output.exits, failure, logs) if failure else []
    return NodeOutcome(code, failure, output.restarts, log, logs, early)


def _opened(log: Path) -> IO[bytes]:
    try:
        return log.open("ab")
    except OSError:  # a full disk, or the run directory is gone already
        return Path(os.devnull).open("ab")


@dataclass
class _Watch:
    """The loop that watches one launcher process. ``mark`` is in the environment of all processes of the run."""

    process: shell.Process[bytes]
    output: Output | TerminalOutput
    interrupts: Interrupts
    spec: JobSpec
    mark: str
    terminal: bool  # whether the process has our terminal
    deadline: float | None = None  # after an interrupt
    said_alone: bool = False
    failed_at: dict[int, float] = field(default_factory=dict)  # attempt → when it was seen to fail

    def until_end(self, run: RunDir, view: View) -> int:
        ticks = 0
        began = time.monotonic()
        while self.process.poll() is None:
            self.output.poll()
            if ticks % 2 == 0:
                view.tick(run)
            ticks += 1
            if not self.said_alone and time.monotonic() > began + separate_models.EARLY:
                self.say_who_trains_alone(run, view, ended=False)
            self._heed_interrupts(run, time.monotonic())
            self._heed_failures(time.monotonic())
            self.output.wait(POLL)
        self.output.poll()
        view.tick(run)
        return self.process.returncode

    def say_who_trains_alone(self, run: RunDir, view: View, *, ended: bool) -> None:
        self.said_alone = True
        said = separate_models.count_separate_models(run, ended=ended) if self.spec.node_rank == 0 else ""
        if said and self.interrupts.first is None:
            view.line(None, "err", said)

    def _heed_interrupts(self, run: RunDir, now: float) -> None:
        signum = self.interrupts.first
        if signum is None:
            return
        if self.interrupts.count > 1:
            kill_processes(self.mark)
        elif self.deadline is None:
            self.output.muted = True
            saves = signum == signal.SIGTERM and run.listening.exists()
            self.deadline = now + (SAVING if saves else GRACE)
            # A Ctrl-C comes from the terminal, which has sent it to the process as well; `rankup cancel` has not.
            typed = signum == signal.SIGINT and not (run.path / "CANCELLED").exists()
            if self.terminal and typed:
                self.deadline = inf
            else:
                self._pass_on(signum)
        elif now > self.deadline:
            kill_processes(self.mark)

    def _pass_on(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.terminal:
                self.process.send_signal(signum)
            elif self.spec.launcher == "single":
                os.killpg(self.process.pid, signum)
            else:
                self.process.send_signal(signum)  # torchrun passes it on to its ranks

    def _heed_failures(self, now: float) -> None:
        """A launcher may wait half a minute for ranks that ignore SIGTERM: after the grace we end them."""
        attempt = self.output.attempt
        if not any(end.code != 0 and end.attempt == attempt for end in self.output.exits):
            return
        since = self.failed_at.setdefault(attempt, now)
        if now > since + GRACE:
            for rank in list(self.output.running):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.output.running.pop(rank), signal.SIGKILL)
        if now > since + 2 * GRACE and self.output.restarts >= self.spec.max_restarts:
            kill_processes(self.mark)
