"""A cluster on this machine: pretended hosts, and a real scheduler on them (``slurm``, ``pbs``).

A head (the scheduler's server, a bridge) and the nodes are each a network, UTS, mount, IPC and PID namespace with its
own host name, address, /tmp and /dev/shm; all have the lab's /etc, a copy of this machine's. Nothing of it is visible
from outside, not even the bridge, so several labs run beside each other.

Nothing is left behind, however the process that started it ends: each host dies with its pid 1 (``node.sh``), which
dies with that process, and the sweeper removes the files when that process is gone.

All files of this machine are shared, as over NFS, but for /tmp, /dev/shm and /etc. No host reaches another network.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from rankup.core import shell
from rankup.core.shell import Completed
from rankup.drill.lab.users import User
from rankup.errors import RankupError

HEAD = "head"
MOST_NODES = 64
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NETWORK = "10.78.0"
HERE = Path(__file__).parent
_NEEDS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux"}
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
# It waits until nobody can write into its pipe any more. Processes that are being killed may still make files.
_SWEEP = 'read -r _; until rm -rf --one-file-system "$1" 2>/dev/null; do sleep 0.1; done'


class Lab:
    """The cluster: ``node1`` … ``nodeN``, and the head. ``up`` starts it, ``down`` ends it.

    A kind of scheduler says what it needs, writes its files, and knows when its nodes are up; the script of its name
    (``slurm.sh``) starts it on a host.
    """

    kind = ""  # slurm, pbs
    title = ""
    path = SYSTEM_PATH  # where its commands are
    needs: ClassVar[Mapping[str, str]] = {}  # which of Debian's packages has a program
    # In front of all commands.
    _first: tuple[str, ...] = ()

    def __init__(
        self,
        nodes: int = 2,
        *,
        cpus: int = 1,
        gpus: int = 0,
        memory: int = 4_000_000,
        queues: Sequence[str] = (),
        visible: Sequence[Path] = (),
    ) -> None:
        """``cpus``, ``gpus`` and ``memory`` (in MB) are those of each node, pretended if need be. ``queues``: those
        beside the usual one. ``visible``: folders below /tmp that each host sees."""
        self.nodes = tuple(f"node{i}" for i in range(1, nodes + 1))
        self.cpus, self.gpus, self.memory, self.queues = cpus, gpus, memory, queues
        self._visible = visible
        # Not under /tmp: every host has a /tmp of its own, without which PMIx servers of two nodes would collide. Nor
        # in another folder that all may write to, which PBS refuses.
        self._state = Path("/var/spool", f"rankup-lab-{secrets.token_hex(4)}")
        self._inits: dict[str, shell.Process[bytes]] = {}
        self._sweeper: shell.Process[bytes] | None = None

    @classmethod
    def missing(cls) -> list[str]:
        """What is not installed: packages of Debian, or what has none."""
        needs = {**_NEEDS, **cls.needs}
        return sorted(
            {package for name, package in needs.items() if shutil.which(name, path=cls.path) is None}
        )

    @classmethod
    def why_not(cls) -> str:
        """Why a lab cannot run on this machine; empty if it can."""
        if sys.platform != "linux":
            return "it needs Linux"
        if missing := cls.missing():
            return f"not installed: {', '.join(missing)}"
        if os.geteuid() != 0:
            return "it needs root"
        tried = shell.run(["unshare", *_NAMESPACES, "--fork", "true"], env={"PATH": SYSTEM_PATH})
        return f"this root may not make namespaces: {tried.err.strip()}" if tried.code else ""

    def address(self, host: str) -> str:
        """The address of the head or of a node on the lab's network."""
        return f"{NETWORK}.{1 if host == HEAD else 11 + self.nodes.index(host)}"

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
        text: str = "",
    ) -> Completed:
        """Run a command on a node or the head, with the variables ``env`` alone, as ``user`` or as root. ``text`` is
        its stdin.

        After ``timeout`` seconds it is ended with all its children, and ``code`` is 124.
        """
        limited = ["timeout", "--kill-after=5", f"{timeout:g}", *map(str, argv)]
        tokens = [*self.into(host, user), "env", "-C", str(folder), *limited]
        return shell.run(tokens, env={"PATH": self.path, **(env or {})}, timeout=timeout + 15, stdin=text)

    def into(self, host: str, user: User | None = None) -> list[str]:
        """The tokens in front of a command that is to run on ``host``."""
        enter = ["nsenter", *_NAMESPACES, "--target", str(self._pid(host))]
        return [*self._first, *enter, *(user.tokens if user else ())]

    # Up and down.

    def up(self) -> None:
        """Start the hosts and wait until all nodes can be used; seconds. Raises ``RankupError``."""
        state = str(self._state)
        self._sweeper = shell.start(
            ["sh", "-c", _SWEEP, "sweeper", state], stdin=shell.PIPE, cwd=Path("/"), new_session=True
        )
        before = os.umask(0o022)  # users read the scheduler's configuration
        try:
            self._state.mkdir()
            self._write_files()
            self._start_hosts()
        except OSError as error:
            raise self._not_up(str(error)) from None
        finally:
            os.umask(before)
        self._set_up()
        self._until(lambda: self.up_nodes() == {*self.nodes}, "the nodes do not come up")

    def down(self) -> None:
        """End every process of every host at once, and remove the files."""
        self._power_off()
        if self._sweeper is not None and self._sweeper.stdin is not None:
            self._sweeper.stdin.close()
            self._sweeper.wait()
            self._sweeper = None

    def _power_off(self) -> None:
        for host in [*self._inits]:
            self.crash(host)

    def crash(self, host: str) -> None:
        """Every process of the host is gone at once; its kernel still resets the connections."""
        init = self._inits[host]
        init.kill()
        init.wait()
        del self._inits[host]

    def cut_power(self, node: str) -> None:
        """Nothing of the node is heard any more, no reset of a connection either."""
        self._net(f"link delete {node}")
        self.crash(node)

    def revive(self, node: str) -> None:
        """Switch the node on again, and wait until the scheduler takes it. Raises ``RankupError``."""
        self._start(node)
        self._until(lambda: node in self.up_nodes(), f"{node} is not up")

    # What a kind of scheduler says.

    def up_nodes(self) -> set[str]:
        """The nodes that the scheduler can use, or uses."""
        raise NotImplementedError

    def let_preempt(self, user: User) -> None:
        """Have ``user`` requeue running jobs; a SLURM lets a job's owner do it."""

    def _set_up(self) -> None:
        """What is to be done when the hosts have started."""

    def _write_files(self) -> None:
        etc = self._state / "etc"
        shell.run(["cp", "-a", "/etc", str(etc)], env={"PATH": SYSTEM_PATH})
        hosts = [f"{self.address(name)} {name}" for name in (HEAD, *self.nodes)]
        (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        services = etc / "nsswitch.conf"  # no name server can be reached
        services.write_text(re.sub(r"^hosts:.*", "hosts: files", services.read_text(), flags=re.M))

    # Hosts.

    def _start_hosts(self) -> None:
        for host in (HEAD, *self.nodes):
            self._start(host)

    def _start(self, host: str) -> None:
        """Start a host's pid 1 and plug a cable from its eth0 into the head's bridge."""
        new = [*self._first, "unshare", *_NAMESPACES, "--fork", "--kill-child=KILL"]
        script = ["bash", str(HERE / "node.sh"), str(self._state), host, self.address(host), self.kind]
        with (self._state / f"init-{host}.log").open("ab") as log:
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
            # It keeps its hardware's address when it is switched on again: the others remember that.
            card = f"address 02:00:00:00:00:{self.nodes.index(host):02x}"
            self._net(f"link add {host} type veth peer name eth0 {card} netns {self._pid(host)}")
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

    def _until(self, condition: Callable[[], object], what: str, timeout: float = 300) -> None:
        def or_ended() -> object:
            for host, init in self._inits.items():
                if init.poll() is not None:
                    raise self._not_up(f"{host} has ended")
            return condition()

        try:
            until(or_ended, timeout, lambda: what)
        except TimeoutError as error:
            raise self._not_up(str(error)) from None

    def _not_up(self, why: str) -> RankupError:
        logs = [f"== {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self._state.glob("*.log"))]
        return RankupError(
            "lab-not-up", f"no {self.title} comes up here: {why}", context="\n".join(logs), exit_code=1
        )


def until(
    condition: Callable[[], object], timeout: float, why: Callable[[], str], *, slowest: float = 0.2
) -> object:
    """Poll until ``condition`` is true and return what it gave. The longer it takes, the more seldom: each question to
    a scheduler starts five processes."""
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited > timeout:
            raise TimeoutError(f"{why()} after {timeout:g} s")
        time.sleep(min(max(0.05, waited / 10), slowest))
    return value
