"""The lab of ``rankup drill --here``, with what tests need: a user, batch jobs, a warm Python, slow cables."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab_user import ALICE, WithAlice
from rankup.core.shell import Completed
from rankup.drill.lab.lab import HEAD, SYSTEM_PATH, until
from rankup.drill.lab.slurm import SlurmLab
from warm.start import Server, end, ready, start_server, write_clients

__all__ = ["ALICE", "HEAD", "SYSTEM_PATH", "BatchJob", "Lab", "why_not"]

ACTIVE = ("PENDING", "CONFIGURING", "RUNNING", "SIGNALING", "COMPLETING", "REQUEUED", "SUSPENDED")
# A real cluster keeps time, and tests that only compute run beside it: its processes come first.
AHEAD = ("nice", "-n", "-10")
why_not = SlurmLab.why_not


@dataclass(frozen=True)
class BatchJob:
    """A submitted job: its id, and the file that its output goes to."""

    id: str
    log: Path


@functools.cache
def ahead() -> tuple[str, ...]:
    """``AHEAD`` where this is allowed; a container's root may not."""
    tried = subprocess.run([*AHEAD, "true"], capture_output=True)
    return () if tried.returncode or tried.stderr else AHEAD


class Lab(WithAlice, SlurmLab):
    """A test's ``tmp_path`` is not seen by the nodes, being under /tmp. A job or process that a test leaves running is
    a leak to the test suite.
    """

    def __init__(
        self,
        nodes: int = 2,
        *,
        warm: bool = False,
        cpus: int = 4,
        gpus: int = 2,
        memory: int = 1,
        partitions: Sequence[str] = (),
    ) -> None:
        super().__init__(nodes, cpus=cpus, gpus=gpus, memory=memory, queues=partitions)
        self._first = ahead()
        self._warm = warm
        self._servers: list[Server] = []
        self._submitted = 0

    # Commands.

    def run(
        self,
        node: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        timeout: float = 240,
        *,
        alice: bool = False,
    ) -> Completed:
        """In the shared folder, in a clean environment with ``env``; as root, or as ``alice`` in hers."""
        return self.run_as(node, argv, env, timeout, alice=alice)

    def enter(
        self,
        node: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The tokens that run ``argv`` as ``run`` does, for a process that a test watches itself."""
        variables = [f"{name}={value}" for name, value in self.environment(env, alice=False).items()]
        return [*self.into(node), "env", "-i", "-C", str(self.shared), *variables, *map(str, argv)]

    def srun(
        self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None, timeout: float = 240
    ) -> Completed:
        """``srun`` from the head, with its options first: ``lab.srun(["-N2", "hostname"])``."""
        return self.run(HEAD, ["srun", *argv], env, timeout)

    def sbatch(self, script: str, *options: str, env: Mapping[str, str] | None = None) -> BatchJob:
        """Submit the text of a batch script; returns as soon as SLURM has it. ``wait`` waits for its end."""
        self._submitted += 1
        path = self.shared / f"job-{self._submitted}.sh"
        path.write_text(script)
        log = path.with_suffix(".log")
        done = self.run(HEAD, ["sbatch", "--parsable", f"--output={log}", *options, path], env)
        assert done.code == 0, done.err
        return BatchJob(done.out.strip(), log)

    def wait(self, job: BatchJob, timeout: float = 240) -> str:
        """Wait for a job's end; returns its last state (COMPLETED, FAILED, TIMEOUT, …)."""

        def ended() -> str:
            state = self.state(job)
            return "" if state in ACTIVE else state

        return str(until(ended, timeout, lambda: f"job {job.id} is still {self.state(job)}", slowest=0.5))

    def state(self, job: BatchJob) -> str:
        """A job's state now, as ``squeue`` names it."""
        return self.state_of(job.id)

    def wait_for(self, number: str, timeout: float = 240) -> str:
        """The same for a job that was submitted by other means, by its id."""
        return self.wait(BatchJob(number, Path()), timeout)

    def state_of(self, number: str) -> str:
        done = self.run(HEAD, ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={number}"])
        assert done.code == 0, done.err
        return done.out.strip()

    def until(self, condition: Callable[[], object], timeout: float = 240) -> None:
        """Wait until ``condition`` is true; what the queue says otherwise."""
        until(condition, timeout, lambda: self.run(HEAD, ["squeue", "--states=all"]).out)

    @property
    def python(self) -> str:
        """In a lab that is ``warm`` a Python that has imported torch already, on every host.

        What it runs is not a child of SLURM's, but of a server: what SLURM does to the one that it started, the other
        feels through it. See ``warm/client.py``. Tests of how processes end take ``sys.executable``.
        """
        return str(self.shared / "warm" / "python") if self._warm else sys.executable

    @contextlib.contextmanager
    def slowed(self, rate: str) -> Iterator[None]:
        """Each node receives at most ``rate`` (``100mbit``) while the body runs: so does traffic between two nodes."""
        shaped = f"root tbf rate {rate} burst 64k latency 100ms".split()
        try:
            for node in self.nodes:
                assert self.run(HEAD, ["tc", "qdisc", "replace", "dev", node, *shaped]).code == 0
            yield
        finally:
            for node in self.nodes:
                self.run(HEAD, ["tc", "qdisc", "del", "dev", node, "root"])

    # Up and down.

    def _start_hosts(self) -> None:
        super()._start_hosts()
        if self._warm:
            folder = self.shared / "warm"
            folder.mkdir(mode=0o700)
            write_clients(folder)
            nice = -10 if ahead() else 0
            for host in (HEAD, *self.nodes):
                self._servers.append(start_server(folder, host, like=self._pid(host), nice=nice))
            for server in self._servers:
                ready(server)

    def _power_off(self) -> None:
        super()._power_off()
        for server in self._servers:
            end(server)
        self._servers.clear()
