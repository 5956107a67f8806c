"""A real PBS of several nodes on this machine, for the tests marked ``pbs``.

OpenPBS has to be installed already, under ``PBS_EXEC`` or /opt/pbs. A head (server, scheduler, a bridge) and the nodes
(pbs_mom) are pretend hosts, as in the lab of tests/cluster: each is a network, UTS, mount, IPC and PID namespace with
its own host name, address, /etc, /tmp and /dev/shm, and dies with its pid 1, ``host.sh``. PBS runs no job of root, so
each host knows a user, alice, that this machine does not have.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankup.core.shell import Completed

NETWORK = "10.79.0"
HEAD = "head"
CPUS_PER_NODE = 4
GPUS_PER_NODE = 2
ALICE = 61999
NEEDS = ("ip", "unshare", "nsenter", "setpriv", "psql")
HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
PBS_EXEC = Path(os.environ.get("PBS_EXEC", "/opt/pbs"))
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
NEW_HOST = ("setpriv", "--pdeathsig=KILL", "unshare", *NAMESPACES, "--fork", "--kill-child=KILL")
ENTER = ("nsenter", *NAMESPACES, "--target")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What a site's administrator would say: GPUs are counted, jobs that ended are remembered, and a job whose first node
# is lost is requeued after 20 s.
SETTINGS = """\
create resource ngpus type=long,flag=hn
set server flatuid = True
set server job_history_enable = True
set server job_requeue_timeout = 10
set server node_fail_requeue = 20
set server scheduling = True
create queue short queue_type = Execution, resources_default.walltime = 00:01:00
set queue short enabled = True
set queue short started = True
"""


def why_not() -> str:
    """Why a lab cannot run on this machine; empty where it can."""
    if sys.platform != "linux":
        return "needs Linux namespaces"
    if not (PBS_EXEC / "sbin/pbs_server.bin").exists():
        return f"no PBS under {PBS_EXEC} (PBS_EXEC names its folder)"
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in NEEDS if shutil.which(name, path=SYSTEM_PATH) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    allowed = subprocess.run(["unshare", *NAMESPACES, "--fork", "true"], capture_output=True, text=True)
    return f"no namespaces: {allowed.stderr.strip()}" if allowed.returncode else ""


class PbsLab:
    """The cluster. ``up`` starts it, ``down`` ends it; each client call has a timeout of its own.

    ``shared`` is alice's home, which all nodes see; the repository and its Python are seen too.
    """

    def __init__(self, nodes: int = 3) -> None:
        self.nodes = tuple(f"node{i}" for i in range(1, nodes + 1))
        # Not under /tmp, which each host has for itself, nor in any folder that all may write to: PBS would refuse.
        self._state = Path(tempfile.mkdtemp(prefix="rankup-pbs-", dir="/var/spool"))
        self.shared = self._state / "shared"
        self._inits: dict[str, subprocess.Popen[bytes]] = {}

    def address(self, host: str) -> str:
        """The address of the head or of a node on the lab's network."""
        return f"{NETWORK}.{1 if host == HEAD else 11 + self.nodes.index(host)}"

    # What tests call.

    def run(
        self,
        host: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        *,
        root: bool = False,
        text: str | None = None,
    ) -> Completed:
        """Run a command on a host as alice (or ``root``) in her home, in a clean environment with ``env``.

        After ``timeout`` seconds it is ended with all its children, and ``code`` is 124. ``text`` is its stdin.
        """
        clean = {
            "PATH": f"{sysconfig.get_path('scripts')}:{PBS_EXEC}/bin:{SYSTEM_PATH}",
            "HOME": str(self.shared),
            "USER": "root" if root else "alice",
            "LANG": "C.UTF-8",
            **(env or {}),
        }
        variables = [f"{name}={value}" for name, value in clean.items()]
        user = () if root else ("setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups")
        tokens = [*ENTER, str(self._pid(host)), *user, "env", "-i", "-C", str(self.shared), *variables]
        tokens += ["timeout", "--kill-after=5", f"{timeout:g}", *map(str, argv)]
        done = subprocess.run(
            tokens,
            input=text if text is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout + 15,
        )
        return Completed(done.returncode, done.stdout, done.stderr)

    def write(self, name: str, text: str) -> Path:
        """A file of alice's."""
        path = self.shared / name
        path.write_text(text)
        os.chown(path, ALICE, ALICE)
        return path

    def qstat(self, job: str) -> dict[str, Any]:
        """The attributes of a job that is there or was; {} for one that PBS does not know."""
        done = self.run(HEAD, ["qstat", "-x", "-f", "-F", "json", job])
        jobs = json.loads(done.out).get("Jobs", {}) if done.out.strip() else {}
        return dict(next(iter(jobs.values()), {}))

    def qmgr(self, text: str) -> None:
        done = self.run(HEAD, ["qmgr"], root=True, text=text)
        assert done.code == 0, done.out + done.err

    def until(self, condition: Callable[[], object], timeout: float = 60) -> Any:
        """Wait until ``condition`` is true, and return what it gave; what the queue says otherwise."""
        return _until(condition, timeout, lambda: self.run(HEAD, ["qstat", "-x", "-f"]).out)

    # Up and down.

    def up(self) -> None:
        """Start the hosts and wait until all nodes are free; about fifteen seconds."""
        self._state.chmod(0o755)
        self.shared.mkdir()
        os.chown(self.shared, ALICE, ALICE)
        hosts = [f"{self.address(name)} {name}" for name in (HEAD, *self.nodes)]
        (self._state / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        for host in (HEAD, *self.nodes):
            self._start(host)
        _until(self._serves, 300, self._why_not_ready)
        nodes = [
            f"create node {node}\nset node {node} resources_available.ncpus = {CPUS_PER_NODE}\n"
            f"set node {node} resources_available.ngpus = {GPUS_PER_NODE}\n"
            for node in self.nodes
        ]
        self.qmgr(SETTINGS + "".join(nodes))
        # The scheduler reads anew what it has to count.
        self.run(HEAD, ["bash", "-c", f"kill -HUP $(pgrep -f {PBS_EXEC}/sbin/pbs_sched)"], root=True)
        _until(self._ready, 60, self._why_not_ready)

    def down(self) -> None:
        """End every process of every host at once, as a power cut would, and remove the files."""
        for init in self._inits.values():
            init.send_signal(signal.SIGKILL)
            init.wait()
        self._inits.clear()
        _until(lambda: _removed(self._state), 20, lambda: f"{self._state} is still in use")

    def crash(self, node: str) -> None:
        """Everything on the node dies; its kernel still resets the connections."""
        init = self._inits.pop(node)
        init.send_signal(signal.SIGKILL)
        init.wait()

    def cut_power(self, node: str) -> None:
        """Nothing of the node is heard any more, no reset of a connection either."""
        self._ip(f"link set {node} down")
        self.crash(node)

    def revive(self, node: str) -> None:
        """Switch the node on again, and wait until PBS takes it."""
        if node in self._inits:
            self.crash(node)
        self._start(node)
        _until(lambda: self.state_of_node(node) == "free", 120, self._why_not_ready)

    def state_of_node(self, node: str) -> str:
        said = self.run(HEAD, ["pbsnodes", "-F", "json", node], timeout=10).out
        try:
            return str(json.loads(said)["nodes"][node]["state"])
        except (ValueError, KeyError):
            return ""

    def _start(self, host: str) -> None:
        """Start a host's pid 1 and plug a cable from its eth0 into the head's bridge."""
        tokens = [
            *NEW_HOST,
            *("bash", str(HERE / "host.sh"), str(self._state), host, self.address(host)),
            *(str(PBS_EXEC), str(ALICE), str(REPOSITORY), sys.prefix, sys.base_prefix, str(PBS_EXEC)),
        ]
        with (self._state / f"init-{host}.log").open("ab") as log:
            self._inits[host] = subprocess.Popen(
                tokens, env={"PATH": SYSTEM_PATH}, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,  # a Ctrl-C is for the test run, which then calls down()
            )  # fmt: skip
        pid = _until(lambda: self._pid(host), 10, lambda: f"{host} did not start")
        if host == HEAD:
            self._ip("link add bridge type bridge")
            self._ip(f"addr add {self.address(HEAD)}/24 dev bridge")
            self._ip("link set bridge up")
        else:
            self._ip(f"link add {host} type veth peer name eth0 netns {pid}")
            self._ip(f"link set {host} master bridge up")

    def _ip(self, command: str) -> None:
        enter = ["nsenter", "--target", str(self._pid(HEAD)), "--net", "ip", *command.split()]
        subprocess.run(enter, check=True, timeout=10, env={"PATH": SYSTEM_PATH})

    def _pid(self, host: str) -> int:
        """A host's pid 1 as seen from outside: the only child of ``unshare``; 0 while there is none."""
        outer = self._inits[host].pid
        children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        return int(children[0]) if children else 0

    def _serves(self) -> bool:
        # The server has run before that, to set itself up.
        began = (self._state / f"pbs-{HEAD}" / "pbs_version").exists()
        return began and self.run(HEAD, ["qstat", "-B"], timeout=5).code == 0

    def _ready(self) -> bool:
        return all(self.state_of_node(node) == "free" for node in self.nodes)

    def _why_not_ready(self) -> str:
        logs = [f"== {log.name}\n{log.read_text()[-2000:]}" for log in sorted(self._state.glob("*.log"))]
        return "the nodes do not become free\n" + "\n".join(logs)


def _until(condition: Callable[[], object], timeout: float, why: Callable[[], str]) -> Any:
    """Poll until ``condition`` is true and return what it gave."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{why()} after {timeout:g} s")
        time.sleep(0.2)
    return value


def _removed(folder: Path) -> bool:
    """Remove a folder to which processes that are being killed may still write."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
