"""A real SLURM on this machine.

A head (slurmctld, a bridge) and the nodes (slurmd) are pretended hosts: each is a network, UTS, mount, IPC and PID
namespace with its own host name, address, /etc/hosts, /tmp, /dev/shm and munged. Nothing of it is visible from outside,
not even the bridge, so several labs run beside each other.

Nothing is left behind, however the process that started it ends: each host dies with its pid 1 (``node.sh``), which
dies with that process, and the sweeper removes the files when that process is gone.

All files of this machine are shared, as over NFS, but for /tmp and /dev/shm. No host reaches another network.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rankup.core import shell
from rankup.core.shell import Completed
from rankup.drill.lab.users import User
from rankup.errors import RankupError

HEAD = "head"
MOST_NODES = 64
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Which of Debian's packages has the program.
_NEEDS = {
    "slurmctld": "slurmctld", "slurmd": "slurmd", "scontrol": "slurm-client", "munged": "munge", "ip": "iproute2",
    "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux",
}  # fmt: skip
_NETWORK = "10.78.0"
_HERE = Path(__file__).parent
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
# It waits until nobody can write into its pipe any more. Processes that are being killed may still make files.
_SWEEP = 'read -r _; until rm -rf --one-file-system "$1" 2>/dev/null; do sleep 0.1; done'
_UP = {"idle", "allocated", "mixed"}


def missing_packages() -> list[str]:
    """The packages of Debian that this machine lacks."""
    return sorted({pkg for name, pkg in _NEEDS.items() if shutil.which(name, path=SYSTEM_PATH) is None})


def why_not() -> str:
    """Why a lab cannot run on this machine; empty if it can."""
    if sys.platform != "linux":
        return "it needs Linux"
    if missing := missing_packages():
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "it needs root"
    tried = shell.run(["unshare", *_NAMESPACES, "--fork", "true"], env={"PATH": SYSTEM_PATH})
    return f"this root may not make namespaces: {tried.err.strip()}" if tried.code else ""


class Lab:
    """The cluster: ``node1`` … ``nodeN``, and the head. ``up`` starts it, ``down`` ends it."""

    # In front of all commands.
    _first: tuple[str, ...] = ()

    def __init__(
        self,
        nodes: int = 2,
        *,
        cpus: int = 1,
        gpus: int = 0,
        memory: int = 1,
        partitions: Sequence[str] = (),
        features: Sequence[str] = (),
        gpu_type: str = "",
        visible: Sequence[Path] = (),
    ) -> None:
        """``cpus``, ``gpus``, ``memory`` (in MB) and ``features`` are those of each node, pretended if need be.
        ``partitions``: those beside ``main``. ``visible``: folders below /tmp that each host sees."""
        self.nodes = tuple(f"node{i}" for i in range(1, nodes + 1))
        self.cpus, self.gpus, self.memory, self.partitions = cpus, gpus, memory, partitions
        self._features, self._gpu_type, self._visible = features, gpu_type, visible
        # Not under /tmp: every host has a /tmp of its own, without which PMIx servers of two nodes would collide.
        self._state = Path("/var/tmp", f"rankup-lab-{secrets.token_hex(4)}")
        self._inits: dict[str, shell.Process[bytes]] = {}
        self._sweeper: shell.Process[bytes] | None = None

    def address(self, host: str) -> str:
        """The address of the head or of a node on the lab's network."""
        return f"{_NETWORK}.{1 if host == HEAD else 11 + self.nodes.index(host)}"

    # Commands.

    def run(
        self,
        host: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        *,
        user: User | None = None,
        folder: Path = Path("/"),
    ) -> Completed:
        """Run a command on a node or the head, with the variables ``env`` alone, as ``user`` or as root.

        After ``timeout`` seconds it is ended with all its children, and ``code`` is 124.
        """
        limited = ["timeout", "--kill-after=5", f"{timeout:g}", *map(str, argv)]
        tokens = [*self.into(host, user), "env", "-C", str(folder), *limited]
        return shell.run(tokens, env={"PATH": SYSTEM_PATH, **(env or {})}, timeout=timeout + 15)

    def into(self, host: str, user: User | None = None) -> list[str]:
        """The tokens in front of a command that is to run on ``host``."""
        enter = ["nsenter", *_NAMESPACES, "--target", str(self._pid(host))]
        return [*self._first, *enter, *(user.tokens if user else ())]

    # Up and down.

    def up(self) -> None:
        """Start the hosts and wait until all nodes are idle; about two seconds. Raises ``RankupError``."""
        state = str(self._state)
        self._sweeper = shell.start(
            ["sh", "-c", _SWEEP, "sweeper", state], stdin=shell.PIPE, cwd=Path("/"), new_session=True
        )
        before = os.umask(0o022)  # users read SLURM's configuration
        try:
            self._write_files()
            self._start_hosts()
        except OSError as error:
            raise RankupError(
                "lab-not-up", f"no SLURM comes up here: {error}", context=state, exit_code=1
            ) from None
        finally:
            os.umask(before)
        self._until(self._ready, "the nodes do not become idle")

    def down(self) -> None:
        """End every process of every host at once, as a power cut would, and remove the files."""
        self._power_off()
        if self._sweeper is not None and self._sweeper.stdin is not None:
            self._sweeper.stdin.close()
            self._sweeper.wait()
            self._sweeper = None

    def _power_off(self) -> None:
        for host in [*self._inits]:
            self.crash(host)

    def crash(self, host: str) -> None:
        """A power cut: every process of the host is gone at once. SLURM notices after its SlurmdTimeout."""
        init = self._inits[host]
        init.kill()
        init.wait()
        del self._inits[host]

    def revive(self, node: str) -> None:
        """Switch the node on again, and wait until SLURM takes it. Raises ``RankupError``."""
        self._start(node)
        self._until(lambda: {*self._states(f"--nodes={node}")} & _UP, f"{node} is not up")

    def _states(self, *options: str) -> list[str]:
        tokens = ["sinfo", "--Node", "--partition=main", "--noheader", "--format=%T", *options]
        return self.run(HEAD, tokens, timeout=5).out.split()

    def _ready(self) -> bool:
        return self._states() == ["idle"] * len(self.nodes)

    def _write_files(self) -> None:
        state, etc = self._state, self._state / "etc"
        for folder in (state, etc, state / "etc-files", state / "ctl", state / "munge", state / "gpu"):
            folder.mkdir()
        # Over those of /etc.
        hosts = [f"{self.address(name)} {name}" for name in (HEAD, *self.nodes)]
        (state / "etc-files" / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        services = Path("/etc/nsswitch.conf").read_text().splitlines(keepends=True)
        (state / "etc-files" / "nsswitch.conf").write_text(  # no name server can be reached
            "".join("hosts: files\n" if line.startswith("hosts:") else line for line in services)
        )
        (state / "munge.key").write_bytes(os.urandom(128))
        (state / "munge.key").chmod(0o600)
        kind = f":{self._gpu_type}" if self._gpu_type else ""
        (etc / "slurm.conf").write_text(
            (_HERE / "slurm.conf.in").read_text().format(
                head=HEAD, network=_NETWORK, state=state, cpus=self.cpus, memory=self.memory,
                gres=f" Gres=gpu{kind}:{self.gpus}" if self.gpus else "",
                features=f" Feature={','.join(self._features)}" if self._features else "",
                partition_lines="\n".join(f"PartitionName={name}" for name in self.partitions),
                node_lines="\n".join(f"NodeName={node} NodeAddr={self.address(node)}" for node in self.nodes),
            )
        )  # fmt: skip
        # Device files that nothing drives: SLURM counts them, and sets CUDA_VISIBLE_DEVICES from their numbers.
        for index in range(self.gpus):
            os.mknod(state / "gpu" / f"nvidia{index}", stat.S_IFCHR | 0o666, os.makedev(60, index))
        kind = f"Type={self._gpu_type} " if self._gpu_type else ""
        gpus = f"Name=gpu {kind}File={state}/gpu/nvidia[0-{self.gpus - 1}]\n" if self.gpus else ""
        (etc / "gres.conf").write_text(f"AutoDetect=off\n{gpus}")
        (etc / "cgroup.conf").write_text("")

    def _start_hosts(self) -> None:
        for host in (HEAD, *self.nodes):
            self._start(host)

    def _start(self, host: str) -> None:
        """Start a host's pid 1 and plug a cable from its eth0 into the head's bridge."""
        new = [*self._first, "unshare", *_NAMESPACES, "--fork", "--kill-child=KILL"]
        script = ["bash", str(_HERE / "node.sh"), str(self._state), host, self.address(host)]
        with (self._state / f"init-{host}.log").open("wb") as log:
            self._inits[host] = shell.start(
                [*new, *script, *map(str, self._visible)],
                env={"PATH": SYSTEM_PATH}, cwd=Path("/"), stdin=shell.DEVNULL, stdout=log, stderr=log,
                new_session=True, die_with_parent=True,
            )  # fmt: skip
        self._until(lambda: self._pid(host), f"{host} does not start")
        if host == HEAD:
            self._net("link add bridge type bridge")
            self._net(f"addr add {self.address(HEAD)}/24 dev bridge")
            self._net("link set bridge up")
        else:
            self._net(f"link add {host} type veth peer name eth0 netns {self._pid(host)}")
            self._net(f"link set {host} master bridge up")

    def _net(self, words: str) -> None:
        """Run ``ip`` in the head's network, where each node's cable ends."""
        enter = ["nsenter", "--target", str(self._pid(HEAD)), "--net", "ip", *words.split()]
        done = shell.run(enter, env={"PATH": SYSTEM_PATH}, timeout=30)
        if done.code != 0:
            raise self._not_up(f"ip {words}: {done.err.strip()}")

    def _pid(self, host: str) -> int:
        """A host's pid 1 as seen from outside: the only child of ``unshare``; 0 while there is none."""
        outer = self._inits[host].pid
        try:
            children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        except OSError:
            return 0
        return int(children[0]) if children else 0

    def _until(self, condition: Callable[[], object], what: str) -> None:
        def or_ended() -> object:
            for host, init in self._inits.items():
                if init.poll() is not None:
                    raise self._not_up(f"{host} has ended")
            return condition()

        try:
            until(or_ended, 60, lambda: what)
        except TimeoutError as error:
            raise self._not_up(str(error)) from None

    def _not_up(self, why: str) -> RankupError:
        logs = [f"== {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self._state.glob("*.log"))]
        return RankupError(
            "lab-not-up", f"no SLURM comes up here: {why}", context="\n".join(logs), exit_code=1
        )


def until(
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
