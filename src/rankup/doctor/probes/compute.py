"""What needs tensors: the ranks of this node as children, each ``compute_rank``, and what they say.

It runs in a second round of agents, when the first has found the network and the environment in order.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rankup.core import shell
from rankup.doctor.plan import Plan
from rankup.world.address import interface_of
from rankup.world.ports import FIRST_PORT, LAST_PORT

_CHILD = Path(__file__).with_name("compute_rank.py")
# What NCCL says of its transport, in its own log (NCCL_DEBUG=INFO).
_NETWORK = re.compile(r"NCCL INFO Using network (?P<name>[^\n]+)")
_CHANNEL = re.compile(r"NCCL INFO Channel \d+.*? via (?P<name>NET/[\w ]+?)(?:/\d+.*|\s*)$", re.M)
_LOCAL = re.compile(r"NCCL INFO Channel \d+.*? via (?P<name>P2P/[\w ]+?|SHM/?[\w ]*?)(?:/.*|\s*)$", re.M)
_PLUGIN = re.compile(r"NCCL INFO (?:NET/Plugin|Plugin): ?(?P<text>[^\n]+)")
_VERSION = re.compile(r"NCCL version (?P<version>[\d.]+)")
_INTERFACE = re.compile(r"NCCL INFO (?:NET/\w+|Bootstrap) ?: Using \[?0?\]?:?(?P<name>[\w.]+)[:<]")


def probe(plan: Plan, node: int) -> dict[str, Any]:
    """For each rank what it said, stage by stage, and the last stage that it reached."""
    deadline = time.monotonic() + plan.window - 1.0
    first, counts = sum(plan.counts[:node]), plan.counts
    with tempfile.TemporaryDirectory(prefix="rankup-doctor-") as name:
        folder = Path(name)
        children = [_start(plan, node, first + local, local, folder) for local in range(counts[node])]
        try:
            while any(child.poll() is None for child in children) and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        ranks = [_said(folder, first + local) for local in range(counts[node])]
        logs = [path.read_text(errors="replace") for path in sorted(folder.glob("nccl-*"))]
    return {"ranks": ranks, "nccl": read_nccl_log(logs[0]) if logs else None}


def _start(plan: Plan, node: int, rank: int, local: int, folder: Path) -> shell.Process[bytes]:
    env = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(sum(plan.counts)),
        "RANKUP_DOCTOR_MEET": f"{plan.meet}:{meeting_port(plan)}",
        "RANKUP_DOCTOR_WAIT": f"{max(plan.window - 4.0, 3.0):g}",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(_cores() // plan.counts[node], 1)),
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": str(folder / f"nccl-{rank}"),
    }
    own = plan.addresses[node] if plan.addresses else ""
    # gloo would take the address of the machine's own name, which need not be that of the route.
    if "GLOO_SOCKET_IFNAME" not in env and (interface := interface_of(own or "127.0.0.1")):
        env["GLOO_SOCKET_IFNAME"] = interface
    with (folder / f"out-{rank}").open("wb") as out, (folder / f"err-{rank}").open("wb") as err:
        return shell.start(
            [plan.python or sys.executable, str(_CHILD)], env=env, stdin=shell.DEVNULL, stdout=out, stderr=err,
            new_session=True, die_with_parent=False,
        )  # fmt: skip


def meeting_port(plan: Plan) -> int:
    """The last of node 0's ports: agents of the first round listened on the first that was free."""
    port = plan.ports(0)[-1]
    return port if FIRST_PORT <= port <= LAST_PORT else FIRST_PORT


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _said(folder: Path, rank: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"rank": rank, "stage": "start"}
    for line in (folder / f"out-{rank}").read_text(errors="replace").splitlines():
        try:
            said = json.loads(line)
            facts |= said
        except (ValueError, TypeError):
            continue  # what a site's sitecustomize prints, or half a line
    if facts["stage"] == "start":
        words = (folder / f"err-{rank}").read_text(errors="replace").strip().splitlines()
        facts["error"] = words[-1][:300] if words else ""
    return facts


def read_nccl_log(text: str) -> dict[str, Any]:
    """``network``: Socket, IB, AWS Libfabric …; ``between`` and ``inside``: transports of its channels."""
    plugin = [match["text"].strip() for match in _PLUGIN.finditer(text)]
    return {
        "version": _first(_VERSION, text, "version"),
        "network": _first(_NETWORK, text, "name"),
        "between": sorted({match["name"].strip() for match in _CHANNEL.finditer(text)}),
        "inside": sorted({match["name"].strip() for match in _LOCAL.finditer(text)}),
        "plugin": plugin[-1] if plugin else None,
        "interface": _first(_INTERFACE, text, "name"),
    }


def _first(pattern: re.Pattern[str], text: str, group: str) -> str | None:
    match = pattern.search(text)
    return match[group].strip() if match else None
