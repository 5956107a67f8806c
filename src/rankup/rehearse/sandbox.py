"""Runs a command where it can change nothing: in namespaces of its own, on a copy-on-write view of this machine.

``main`` reads its plan from a file. The process that is started stays outside; its child is process 1 of the sandbox
and ends it. All others die with process 1, and process 1 with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

from rankup.rehearse.mounts import MOST_BYTES, Mounts, set_read_only
from rankup.rehearse.supervision import watch
from rankup.rehearse.system_calls import (
    BIND,
    CAP_SYS_ADMIN,
    NAMESPACES,
    NODEV,
    NOSUID,
    PR_CAP_AMBIENT,
    PR_SET_PDEATHSIG,
    PRIVATE,
    REC,
    Libc,
)


def available() -> str:
    """Why this machine has no namespaces for us; empty if it has."""
    if sys.platform != "linux":
        return "needs Linux"
    pid = os.fork()
    if pid == 0:
        try:
            Libc().call("unshare", NAMESPACES)
            os._exit(0)
        except OSError as error:
            os._exit(min(error.errno or 1, 255))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return f"user namespaces: {os.strerror(code)}" if code else ""


def main(plan_file: str) -> int:
    """Run the plan, a JSON object that ``rehearse`` writes: what to run, and what the sandbox holds."""
    plan: dict[str, Any] = json.loads(Path(plan_file).read_text())
    libc = Libc()
    uid, gid = os.getuid(), os.getgid()
    libc.call("unshare", NAMESPACES)
    _map_ids(uid, gid)
    libc.mount("none", "/", None, REC | PRIVATE)
    root = Path(plan["scratch"], "root")
    mounts = Mounts(libc, root, Path(plan["scratch"]), plan)
    mounts.build()
    child = os.fork()
    if child:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, lambda *_: os.kill(child, signal.SIGKILL))
        _, status = os.waitpid(child, 0)
        return 0 if status == 0 else 1
    try:
        libc.call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
        _process_one(libc, mounts, plan, uid)
    except BaseException as error:
        Path(plan["scratch"], "sandbox-error").write_text(f"{type(error).__name__}: {error}")
        os._exit(1)
    os._exit(0)


def _map_ids(uid: int, gid: int) -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
    for kind, number in (("uid", uid), ("gid", gid)):
        path = Path(f"/proc/self/{kind}_map")
        try:  # root may map all
            if number:
                raise OSError
            path.write_text("0 0 4294967295")
        except OSError:
            path.write_text(f"{number} {number} 1")


def _process_one(libc: Libc, mounts: Mounts, plan: dict[str, Any], uid: int) -> None:
    scratch = Path(plan["scratch"])
    _network(plan["hosts"].values())
    libc.call("sethostname", plan["host"], len(plan["host"]))
    try:
        libc.mount("proc", mounts.root / "proc", "proc", NOSUID | NODEV)
        with contextlib.suppress(OSError):  # a limit of this namespace alone, from Linux 6.14 on
            if _pid_max_is_ours():
                (mounts.root / "proc/sys/kernel/pid_max").write_text(
                    str(max(_LEAST_PID_MAX, 2 * plan["most_processes"]))
                )
        for name in ("sys", "sysrq-trigger"):
            with contextlib.suppress(OSError):
                libc.mount(str(mounts.root / "proc" / name), mounts.root / "proc" / name, None, BIND | REC)
                set_read_only(libc, mounts.root / "proc" / name)
    except OSError:
        libc.mount("/proc", mounts.root / "proc", None, BIND | REC)
    outside = os.open("/", os.O_RDONLY)
    os.chroot(mounts.root)
    os.chdir("/")
    os.umask(plan.get("umask", 0o022))
    if not plan["writable"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # counted in this namespace alone, from Linux 5.14 on
        resource.setrlimit(resource.RLIMIT_NPROC, (2 * plan["most_processes"],) * 2)
    watched = watch(plan, lambda: _keep_capability(libc) if uid else None)
    result = {"overlaid": mounts.overlaid, "left_out": mounts.left_out, **watched}
    os.fchdir(outside)
    os.chroot(".")
    result["changed"] = mounts.changed()
    result["written"] = mounts.written(result["changed"])
    (scratch / "result.json").write_text(json.dumps(result))


_LEAST_PID_MAX = 400  # Linux takes no less than 301


def _pid_max_is_ours() -> bool:
    numbers = os.uname().release.split(".")[:2]
    return [int(number) for number in numbers if number.isdigit()] >= [6, 14]


def _network(addresses: Any) -> None:
    """The loopback device of this network, which is connected with nothing, gets the nodes' addresses."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        up = struct.pack("16sh14x", b"lo", 1 | 64)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(sock, 0x8914, up)
        for number, address in enumerate(addresses):
            name = f"lo:{number}".encode()
            request = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address))
            with contextlib.suppress(OSError):
                fcntl.ioctl(sock, 0x8916, request)


def _keep_capability(libc: Libc) -> None:
    """A user who is not root keeps, over an exec, what names a host: it is worth nothing outside of the sandbox."""

    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    bits = 1 << CAP_SYS_ADMIN
    data = (ctypes.c_uint32 * 6)(bits, bits, bits, 0, 0, 0)
    with contextlib.suppress(OSError):
        libc.call("capset", ctypes.byref(Header(0x20080522, 0)), ctypes.byref(data))
        libc.call("prctl", PR_CAP_AMBIENT, 2, ctypes.c_ulong(CAP_SYS_ADMIN), 0, 0)
