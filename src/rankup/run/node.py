"""This node's processes: start them, watch them, and see to it that none is left."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rankup.core import shell
from rankup.launchers.base import launcher_named
from rankup.run import separate_models
from rankup.run.attempts import Attempt
from rankup.run.environment import INIT_FILE
from rankup.run.failure import Exit, Logs, first_failure, left_early
from rankup.run.logs import Output
from rankup.run.process_cleanup import MARK, kill_processes

if TYPE_CHECKING:  # most runs have none
    from rankup.run.terminal import TerminalOutput

_GUARD = Path(__file__).with_name("rank.py")
_GPUS = "CUDA_VISIBLE_DEVICES"
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


def run_node(attempt: Attempt) -> NodeOutcome:
    """Run this node's share to its end; nothing of it is alive afterwards."""
    spec, run, env = attempt.spec, attempt.run, attempt.env
    suffix = f"-node-{spec.node_rank}" if spec.nodes > 1 else ""
    log = run.logs / f"torchrun{suffix}.err"
    output: Output | TerminalOutput
    spare = None
    if terminal := attempt.terminal and spec.launcher == "single":
        from rankup.run.terminal import TerminalOutput

        output = TerminalOutput(run.logs)
        process = output.start(spec.rank_command, env, spec.folder)
    else:
        # On this machine's own disk; a rank makes it that needs it.
        spare = Path(tempfile.gettempdir(), f"rankup-{secrets.token_hex(8)}")
        events = run.logs / f"events{suffix}.jsonl"
        alone = spec.world_size == 1
        shown = log if attempt.debug else None
        output = Output(run.logs, events, attempt.view, spare=spare, alone=alone, chatter=shown)
        guard = (sys.executable, "-I", "-S", *map(str, (_GUARD, run.logs, events, spare, os.getpid())))
        with _opened(log) as chatter:
            process = shell.start(
                launcher_named(spec.launcher)(spec, run.path.name, guard),
                env=env,
                cwd=spec.folder,
                stdin=None if spec.launcher == "single" and not attempt.closed_input else shell.DEVNULL,
                stdout=chatter,
                stderr=chatter,
                # A session of its own: the terminal's Ctrl-C then reaches us alone, and we pass it on once.
                new_session=True,
                die_with_parent=True,
            )
    watch = _Watch(attempt, process, output, terminal)
    try:
        with _sampled(attempt):
            code = watch.until_end()
    finally:
        kill_processes(env[MARK])
        process.wait()
        output.finish()
        with contextlib.suppress(OSError):
            Path(env[INIT_FILE]).unlink()
    watch.say_who_trains_alone(ended=True)
    logs = Logs(run.logs, spare if spare is not None and spare.exists() else None)
    failure = first_failure(output.exits, logs)
    early = left_early(output.exits, failure, logs) if failure else []
    return NodeOutcome(code, failure, output.restarts, log, logs, early)


def _opened(log: Path) -> IO[bytes]:
    try:
        return log.open("ab")
    except OSError:  # a full disk, or the run directory is gone already
        return Path(os.devnull).open("ab")


@contextlib.contextmanager
def _sampled(attempt: Attempt) -> Iterator[None]:
    """Sample this node's processors (``rankup.monitor``) while the body runs. Nobody waits for the sampler's start.

    If it cannot be started or fails, there are no samples, and nothing is said: a run requires none.
    """
    process = _start_sampler(attempt) if attempt.spec.monitor else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def _start_sampler(attempt: Attempt) -> shell.Process[bytes] | None:
    # Our Python, which imports what we import: in another folder, or modules of the job's folder would come first.
    ours = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}  # noqa: PTH100
    ours |= {name: attempt.env[name] for name in (MARK, _GPUS) if name in attempt.env}
    try:
        return shell.start(
            [sys.executable, "-m", "rankup.monitor", str(attempt.run.path), str(os.getpid())],
            env=ours,
            cwd=Path("/"),
            stdin=shell.DEVNULL,
            stdout=shell.DEVNULL,
            stderr=shell.DEVNULL,
            new_session=True,
            die_with_parent=True,
        )
    except OSError:  # no memory, or no more processes
        return None


@dataclass
class _Watch:
    """The loop that watches one launcher process."""

    attempt: Attempt
    process: shell.Process[bytes]
    output: Output | TerminalOutput
    terminal: bool  # whether the process has our terminal
    deadline: float | None = None  # after an interrupt
    said_alone: bool = False
    failed_at: dict[int, float] = field(default_factory=dict)  # attempt → when it was seen to fail

    def until_end(self) -> int:
        view, run = self.attempt.view, self.attempt.run
        ticks = 0
        began = time.monotonic()
        while self.process.poll() is None:
            self.output.poll()
            if ticks % 2 == 0:
                view.tick(run)
            ticks += 1
            if not self.said_alone and time.monotonic() > began + separate_models.EARLY:
                self.say_who_trains_alone(ended=False)
            self._heed_interrupts(time.monotonic())
            self._heed_failures(time.monotonic())
            self.output.wait(POLL)
        self.output.poll()
        view.tick(run)
        return self.process.returncode

    def say_who_trains_alone(self, *, ended: bool) -> None:
        self.said_alone = True
        attempt = self.attempt
        if attempt.spec.node_rank == 0 and attempt.interrupts.first is None:
            said = separate_models.count_separate_models(attempt.run, ended=ended)
            if said:
                attempt.view.line(None, "err", said)

    def _heed_interrupts(self, now: float) -> None:
        run, signum = self.attempt.run, self.attempt.interrupts.first
        if signum is None:
            return
        if self.attempt.interrupts.count > 1:
            self._kill()
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
            self._kill()

    def _pass_on(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.terminal:
                self.process.send_signal(signum)
            elif self.attempt.spec.launcher == "single":
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
        if now > since + 2 * GRACE and self.output.restarts >= self.attempt.spec.max_restarts:
            self._kill()

    def _kill(self) -> None:
        kill_processes(self.attempt.env[MARK])
