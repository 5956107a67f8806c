"""A real SLURM of two nodes on this machine, for the tests marked ``cluster``.

A head (slurmctld, a bridge) and the nodes (slurmd) are three pretend hosts: each is a network, UTS, mount,
IPC and PID namespace with its own host name, address, /etc/hosts, /tmp, /dev/shm and munged. Nothing of it
is visible from outside, not even the bridge, so several labs run beside each other; and each host dies with
its pid 1, which dies with the process that started it, so nothing is left behind however a test run ends.

All files of this machine are shared, as over NFS, but for /tmp and /dev/shm. ``node.sh`` is pid 1 of a host.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankup.core.shell import Completed
from warm.start import Server, end, ready, start_server, write_clients

NETWORK = "10.78.0"
ACTIVE = ("PENDING", "CONFIGURING", "RUNNING", "SIGNALING", "COMPLETING", "REQUEUED", "SUSPENDED")
HEAD = "head"
ALICE = 61999
CPUS_PER_NODE = 4
GPUS_PER_NODE = 2
NEEDS = ("slurmctld", "slurmd", "munged", "scontrol", "ip", "tc", "unshare", "nsenter", "setpriv")
HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
NEW_HOST = ("setpriv", "--pdeathsig=KILL", "unshare", *NAMESPACES, "--fork", "--kill-child=KILL")
ENTER = ("nsenter", *NAMESPACES, "--target")
# A real cluster keeps time, and tests that only compute run beside it: its processes come first.
AHEAD = ("nice", "-n", "-10")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class BatchJob:
    """A submitted job: its id, and the file that its output goes to."""

    id: str
    log: Path


def why_not() -> str:
    """Why a lab cannot run on this machine; empty where it can."""
    if sys.platform != "linux":
        return "needs Linux namespaces"
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in NEEDS if shutil.which(name, path=SYSTEM_PATH) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


@functools.cache
def ahead() -> tuple[str, ...]:
    """``AHEAD`` where this is allowed; a container's root may not."""
    tried = subprocess.run([*AHEAD, "true"], capture_output=True)
    return () if tried.returncode or tried.stderr else AHEAD


class Lab:
    """The cluster. ``up`` starts it, ``down`` ends it; each client call has a timeout of its own.

    ``shared`` is a folder that all nodes see; the repository and its Python are seen too. A test's
    ``tmp_path`` is not, being under /tmp. A job or process that a test leaves running is a leak to the test
    suite.
    """

    def __init__(
        self,
        nodes: int = 2,
        *,
        warm: bool = False,
        cpus: int = CPUS_PER_NODE,
        gpus: int = GPUS_PER_NODE,
        memory: int = 1,
        partitions: Sequence[str] = (),
    ) -> None:
        """``memory``: of a node, in MB, for jobs that ask for it; ``partitions``: those beside ``main``."""
        self.nodes = tuple(f"node{i}" for i in range(1, nodes + 1))
        self.cpus, self.gpus, self.memory, self.partitions = cpus, gpus, memory, partitions
        # Not under /tmp: every host has a /tmp of its own, without which PMIx servers of two nodes would
        # collide.
        self._state = Path(tempfile.mkdtemp(prefix="rankup-lab-", dir="/var/tmp"))
        self.shared = self._state / "shared"
        self.alice = self.shared / "alice"  # the home of the lab's user
        self._inits: dict[str, subprocess.Popen[bytes]] = {}
        self._warm = warm
        self._servers: list[Server] = []
        self._submitted = 0

    def address(self, host: str) -> str:
        """The address of the head or of a node on the lab's network."""
        return f"{NETWORK}.{1 if host == HEAD else 11 + self.nodes.index(host)}"

    # What tests call.

    def run(
        self,
        node: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        *,
        alice: bool = False,
    ) -> Completed:
        """Run a command on a node (or ``"head"``) in the shared folder, in a clean environment with ``env``; as root,
        or as ``alice`` in hers.

        After ``timeout`` seconds it is ended with all its children, and ``code`` is 124.
        """
        tokens = self.enter(node, ["timeout", "--kill-after=5", f"{timeout:g}", *argv], env, alice=alice)
        done = subprocess.run(
            tokens,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout + 15,
        )
        return Completed(done.returncode, done.stdout, done.stderr)

    def enter(
        self,
        node: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        *,
        alice: bool = False,
    ) -> list[str]:
        """The tokens that run ``argv`` as ``run`` does, for a process that a test watches itself."""
        clean = {
            "PATH": f"{sysconfig.get_path('scripts')}:{SYSTEM_PATH}",
            "HOME": str(self.alice if alice else self.shared),
            "USER": "alice" if alice else "root",
            "LANG": "C.UTF-8",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            **(env or {}),
        }
        variables = [f"{name}={value}" for name, value in clean.items()]
        user = ("setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups") if alice else ()
        return [
            *ahead(),
            *ENTER,
            str(self._pid(node)),
            *user,
            "env",
            "-i",
            "-C",
            str(self.alice if alice else self.shared),
            *variables,
            *map(str, argv),
        ]

    def srun(
        self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None, timeout: float = 60
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

    def wait(self, job: BatchJob, timeout: float = 60) -> str:
        """Wait for a job's end; returns its last state (COMPLETED, FAILED, TIMEOUT, …)."""

        def ended() -> str:
            state = self.state(job)
            return "" if state in ACTIVE else state

        return _until(ended, timeout, lambda: f"job {job.id} is still {self.state(job)}", slowest=0.5)

    def state(self, job: BatchJob) -> str:
        """A job's state now, as ``squeue`` names it."""
        return self.state_of(job.id)

    def wait_for(self, number: str, timeout: float = 60) -> str:
        """The same for a job that was submitted by other means, by its id."""
        return self.wait(BatchJob(number, Path()), timeout)

    def state_of(self, number: str) -> str:
        done = self.run(HEAD, ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={number}"])
        assert done.code == 0, done.err
        return done.out.strip()

    @property
    def python(self) -> str:
        """In a lab that is ``warm`` a Python that has imported torch already, on every host.

        What it runs is not a child of SLURM's, but of a server: what SLURM does to the one that it started, the other
        feels through it. See ``warm/client.py``. Tests of how processes end take ``sys.executable``.
        """
        return str(self.shared / "warm" / "python") if self._warm else sys.executable

    # Up and down.

    def up(self) -> None:
        """Start the hosts and wait until all nodes are idle; about two seconds."""
        self._write_files()
        self._start(HEAD)
        for node in self.nodes:
            self._start(node)
        if self._warm:
            self._start_servers()
        _until(self._ready, 60, self._why_not_ready)

    def _start_servers(self) -> None:
        folder = self.shared / "warm"
        folder.mkdir(mode=0o700)
        write_clients(folder)
        for host in (HEAD, *self.nodes):
            nice = -10 if ahead() else 0
            self._servers.append(start_server(folder, host, like=self._pid(host), nice=nice))
        for server in self._servers:
            ready(server)

    def down(self) -> None:
        """End every process of every host at once, as a power cut would, and remove the files."""
        for init in self._inits.values():
            init.send_signal(signal.SIGKILL)
            init.wait()
        self._inits.clear()
        for server in self._servers:
            end(server)
        _until(lambda: _removed(self._state), 10, lambda: f"{self._state} is still in use")

    def crash(self, node: str) -> None:
        """A power cut: every process of the node is gone at once. SLURM notices after its SlurmdTimeout."""
        init = self._inits.pop(node)
        init.send_signal(signal.SIGKILL)
        init.wait()

    def revive(self, node: str) -> None:
        """Switch the node on again, and wait until SLURM takes it."""
        self._start(node)
        _until(lambda: self._state_of_node(node) in ("idle", "allocated", "mixed"), 60, self._why_not_ready)

    def _state_of_node(self, node: str) -> str:
        return self.run(
            HEAD, ["sinfo", "--partition=main", "--noheader", f"--nodes={node}", "--format=%T"]
        ).out.strip()

    @contextlib.contextmanager
    def slowed(self, rate: str) -> Iterator[None]:
        """Each node receives at most ``rate`` (``100mbit``) while the body runs: so does traffic between two nodes."""
        try:
            for node in self.nodes:
                self._net(f"tc qdisc replace dev {node} root tbf rate {rate} burst 64k latency 100ms")
            yield
        finally:
            for node in self.nodes:
                self._net(f"tc qdisc del dev {node} root")

    def until(self, condition: Callable[[], object], timeout: float = 60) -> None:
        """Wait until ``condition`` is true; what the queue says otherwise."""
        _until(condition, timeout, lambda: self.run(HEAD, ["squeue", "--states=all"]).out)

    def _write_files(self) -> None:
        state, etc = self._state, self._state / "etc"
        state.chmod(0o755)  # munged wants its socket to be reachable by all
        for folder in (etc, self.shared, state / "ctl", state / "munge", state / "gpu"):
            folder.mkdir()
        hosts = [f"{self.address(name)} {name}" for name in (HEAD, *self.nodes)]
        (state / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        (state / "munge.key").write_bytes(os.urandom(128))
        (state / "munge.key").chmod(0o600)
        (etc / "slurm.conf").write_text(
            (HERE / "slurm.conf.in").read_text().format(
                head=HEAD, network=NETWORK, state=state, cpus=self.cpus, gpus=self.gpus,
                memory=self.memory,
                partition_lines="\n".join(f"PartitionName={name}" for name in self.partitions),
                node_lines="\n".join(f"NodeName={node} NodeAddr={self.address(node)}" for node in self.nodes),
            )
        )  # fmt: skip
        # Device files that nothing drives: SLURM counts them, and sets CUDA_VISIBLE_DEVICES from their
        # numbers.
        for index in range(self.gpus):
            os.mknod(state / "gpu" / f"nvidia{index}", stat.S_IFCHR | 0o666, os.makedev(60, index))
        gpus = f"Name=gpu File={state}/gpu/nvidia[0-{self.gpus - 1}]\n"
        (etc / "gres.conf").write_text(f"AutoDetect=off\n{gpus}")
        (etc / "cgroup.conf").write_text("")
        self.alice.mkdir()
        os.chown(self.alice, ALICE, ALICE)

    def _start(self, host: str) -> None:
        """Start a host's pid 1 and plug a cable from its eth0 into the head's bridge."""
        tokens = [
            *ahead(),
            *NEW_HOST,
            *("bash", str(HERE / "node.sh"), str(self._state), host, self.address(host)),
            *(str(ALICE), str(REPOSITORY), sys.prefix, sys.base_prefix),
        ]
        with (self._state / f"init-{host}.log").open("wb") as log:
            self._inits[host] = subprocess.Popen(
                tokens, env={"PATH": SYSTEM_PATH}, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,  # a Ctrl-C is for the test run, which then calls down()
            )  # fmt: skip
        pid = _until(lambda: self._pid(host), 10, lambda: f"{host} did not start")
        if host == HEAD:
            self._net("ip link add bridge type bridge")
            self._net(f"ip addr add {self.address(HEAD)}/24 dev bridge")
            self._net("ip link set bridge up")
        else:
            self._net(f"ip link add {host} type veth peer name eth0 netns {pid}")
            self._net(f"ip link set {host} master bridge up")

    def _net(self, command: str) -> None:
        """Run ``command`` in the head's network, where each node's cable ends."""
        enter = ["nsenter", "--target", str(self._pid(HEAD)), "--net", *command.split()]
        subprocess.run(enter, check=True, timeout=10, env={"PATH": SYSTEM_PATH})

    def _pid(self, host: str) -> int:
        """A host's pid 1 as seen from outside: the only child of ``unshare``; 0 while there is none."""
        outer = self._inits[host].pid
        children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        return int(children[0]) if children else 0

    def _ready(self) -> bool:
        nodes = self.run(
            HEAD, ["sinfo", "--Node", "--partition=main", "--noheader", "--format=%T"], timeout=5
        )
        return nodes.out.split() == ["idle"] * len(self.nodes)

    def _why_not_ready(self) -> str:
        logs = [f"== {log.name}\n{log.read_text()[-2000:]}" for log in sorted(self._state.glob("*.log"))]
        return "the nodes do not become idle\n" + "\n".join(logs)


def _until(
    condition: Callable[[], object], timeout: float, why: Callable[[], str], *, slowest: float = 0.2
) -> object:
    """Poll until ``condition`` is true and return what it gave. The longer it takes, the more seldom: each question to
    SLURM starts five processes."""
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited > timeout:
            raise TimeoutError(f"{why()} after {timeout:g} s")
        time.sleep(min(max(0.05, waited / 10), slowest))
    return value


def _removed(folder: Path) -> bool:
    """Remove a folder to which processes that are being killed may still write."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
