"""Runs a command where it can change nothing: in namespaces of its own, on a copy-on-write view of this machine.

``python -m`` is not used: ``start_command`` gives the tokens, and the sandbox reads its plan from a file. The process
that is started stays outside; its child is process 1 of the sandbox and ends it: at the time limit, when the command
ends, or when there are too many processes. All others die with process 1, and process 1 with its parent.

Where directories cannot be overlaid (older kernels), everything is read-only but a copy of the job's folder.
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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rankup.rehearse.copying import copy_folder

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_MOUNT_SETATTR, _AT_RECURSIVE = 442, 0x8000
_MOST_ENTRIES = 4000
_MOST_PROCESSES = 1500
_LAST_LOOK = 1.5  # seconds
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_CAP_AMBIENT, _CAP_SYS_ADMIN = 1, 36, 47, 21
_NOT_COPIED = ("proc", "sys", "dev", "run")
MOST_BYTES = 1 << 30  # that a script may write, all in memory


class _Libc:
    """System calls that Python does not have, with errors as OSError."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def call(self, name: str, *args: Any) -> int:
        encoded = [arg.encode() if isinstance(arg, str) else arg for arg in args]
        result: int = getattr(self._libc, name)(*encoded)
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")
        return result

    def mount(
        self, source: str, target: str | Path, kind: str | None, flags: int, data: str | None = None
    ) -> None:
        self.call("mount", source, str(target), kind, ctypes.c_ulong(flags), data)


def available() -> str:
    """Why this machine has no namespaces for us; empty if it has."""
    if sys.platform != "linux":
        return "needs Linux"
    pid = os.fork()
    if pid == 0:
        try:
            _Libc().call("unshare", _NEWUSER | _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS)
            os._exit(0)
        except OSError as error:
            os._exit(min(error.errno or 1, 255))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return f"user namespaces: {os.strerror(code)}" if code else ""


def main(plan_file: str) -> int:
    """Run the plan, a JSON object that ``rehearse`` writes: what to run, and what the sandbox holds."""
    plan: dict[str, Any] = json.loads(Path(plan_file).read_text())
    libc = _Libc()
    uid, gid = os.getuid(), os.getgid()
    libc.call("unshare", _NEWUSER | _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS)
    _map_ids(uid, gid)
    libc.mount("none", "/", None, _REC | _PRIVATE)
    root = Path(plan["scratch"], "root")
    layout = _Layout(libc, root, Path(plan["scratch"]), plan)
    layout.build()
    child = os.fork()
    if child:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, lambda *_: os.kill(child, signal.SIGKILL))
        _, status = os.waitpid(child, 0)
        return 0 if status == 0 else 1
    try:
        libc.call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)
        _process_one(libc, layout, plan, uid)
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


class _Layout:
    """The sandbox's root: directories of this machine as overlays; what is written lies in memory."""

    def __init__(self, libc: _Libc, root: Path, scratch: Path, plan: dict[str, Any]) -> None:
        self.libc, self.root, self.scratch, self.plan = libc, root, scratch, plan
        self.mounts = sorted(_mount_points())
        self.uppers: list[tuple[Path, str]] = []
        self.overlaid = True
        self.left_out: list[str] = []
        hosts = "".join(f"{address} {name}\n" for name, address in plan["hosts"].items())
        # What the pretended node has: the job script in the spool, host names, what is pretended.
        self.files: dict[str, str] = {**plan["files"], "/etc/hosts": f"127.0.0.1 localhost\n{hosts}"}
        self.links: dict[str, str] = dict(plan["links"])

    def build(self) -> None:
        self.root.mkdir(exist_ok=True)
        memory = self.scratch / "memory"
        memory.mkdir(exist_ok=True)
        self.libc.mount("tmpfs", memory, "tmpfs", _NOSUID | _NODEV, f"size={MOST_BYTES},mode=755")
        self.libc.mount("tmpfs", self.root, "tmpfs", _NOSUID | _NODEV, "size=64m,mode=755")
        self.overlaid = not self.plan.get("no_overlay") and self._can_overlay()
        if not self.overlaid:
            # Folders that are mounted below are made of their entries, so these two can be put in their places.
            self.mounts += [str(self.scratch), self.plan["folder"]]
            self.left_out = copy_folder(Path(self.plan["folder"]), Path(self.plan["copy"]))
        self._directory(Path("/"), top=True)
        self._add_files("/", self.root)
        if not self.overlaid:
            self._inside(Path(self.plan["folder"])).mkdir(parents=True, exist_ok=True)
            self._bind(Path(self.plan["copy"]), self._inside(Path(self.plan["folder"])))
        target = self._inside(self.scratch)
        with contextlib.suppress(OSError):
            target.mkdir(parents=True, exist_ok=True)
        self._bind(self.scratch, target)
        self._devices()

    def _inside(self, path: Path) -> Path:
        return self.root / path.relative_to("/")

    def _directory(self, path: Path, *, top: bool = False) -> None:
        """Make ``path`` part of the root. One that has mounts below is made of its entries."""
        below = any(mount.startswith(str(path).rstrip("/") + "/") for mount in self.mounts)
        target = self._inside(path)
        target.mkdir(exist_ok=True, parents=True)
        if not top and not below:
            self._overlay(path, target)
            return
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError:
            return
        if len(entries) > _MOST_ENTRIES:
            self._read_only(path, target)
            return
        for entry in entries:
            if top and entry.name in _NOT_COPIED:
                (self.root / entry.name).mkdir()
            elif entry.is_symlink():
                with contextlib.suppress(OSError):
                    self._inside(Path(entry.path)).symlink_to(os.readlink(entry.path))  # noqa: PTH115
            elif entry.is_dir(follow_symlinks=False):
                if entry.path != str(self.scratch) and (self.overlaid or entry.path != self.plan["folder"]):
                    self._directory(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                inside = self._inside(Path(entry.path))
                inside.touch()
                self._read_only(Path(entry.path), inside)
        with contextlib.suppress(OSError):
            mode = path.stat().st_mode & 0o7777
            target.chmod(mode if not top else 0o755)

    def _overlay(self, path: Path, target: Path) -> None:
        number = len(self.uppers)
        upper, work = (self.scratch / "memory" / f"{kind}{number}" for kind in ("upper", "work"))
        upper.mkdir()
        work.mkdir()
        with contextlib.suppress(OSError):
            upper.chmod(path.stat().st_mode & 0o7777)
        self._add_files(
            f"{path}/", upper
        )  # before the mount: what root owns is not ours to change afterwards
        lower = str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
        for more in (",userxattr", ""):
            if not self.overlaid:
                break
            try:
                self.libc.mount(
                    "overlay",
                    target,
                    "overlay",
                    _NODEV,
                    f"lowerdir={lower},upperdir={upper},workdir={work}{more}",
                )
                self.uppers.append((upper, str(path)))
                return
            except OSError:
                continue
        self.uppers.append((upper, ""))
        self._read_only(path, target)

    def _can_overlay(self) -> bool:
        """Whether this machine overlays folders for a user: from Linux 5.11 on, on most file systems."""
        folders = [self.scratch / "memory" / name for name in ("try", "try-upper", "try-work")]
        for folder in folders:
            folder.mkdir()
        target, upper, work = folders
        for more in (",userxattr", ""):
            try:
                self.libc.mount(
                    "overlay",
                    target,
                    "overlay",
                    _NODEV,
                    f"lowerdir=/usr,upperdir={upper},workdir={work}{more}",
                )
                self.libc.call("umount2", str(target), 2)
                return True
            except OSError:
                continue
        return False

    def _add_files(self, below: str, to: Path) -> None:
        """Put the files whose path begins with ``below`` into ``to``."""
        for name in [name for name in self.files if name.startswith(below)]:
            with contextlib.suppress(OSError):
                _write(to / name.removeprefix(below), self.files[name])
                del self.files[name]
        for name in [name for name in self.links if name.startswith(below)]:
            with contextlib.suppress(OSError):
                _link(to / name.removeprefix(below), self.links[name])
                del self.links[name]

    def _bind(self, source: Path, target: Path, *, recursive: bool = False) -> None:
        self.libc.mount(str(source), target, None, _BIND | (_REC if recursive else 0))

    def _read_only(self, source: Path, target: Path) -> None:
        try:
            self.libc.mount(str(source), target, None, _BIND)
        except OSError:
            return
        _set_read_only(self.libc, target)

    def _devices(self) -> None:
        dev = self.root / "dev"
        self.libc.mount("tmpfs", dev, "tmpfs", _NOSUID, "size=256m,mode=755")
        for name in ("null", "zero", "full", "random", "urandom", "tty"):
            if Path("/dev", name).exists():
                (dev / name).touch()
                with contextlib.suppress(OSError):
                    self._bind(Path("/dev", name), dev / name)
        for name, to in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
            (dev / name).symlink_to(f"/proc/self/fd{to}")
        for name in ("shm", "pts"):
            (dev / name).mkdir(mode=0o1777)
        with contextlib.suppress(OSError):
            self.libc.mount("devpts", dev / "pts", "devpts", _NOSUID, "newinstance,ptmxmode=0666,mode=620")
            (dev / "ptmx").symlink_to("pts/ptmx")
        with contextlib.suppress(OSError):  # programs ask it for CPUs and the like
            self._bind(Path("/sys"), self.root / "sys", recursive=True)
            _set_read_only(self.libc, self.root / "sys", must=True)

    def changed(self) -> list[str]:
        """What the command wrote, as paths of this machine; the rehearsal's own files are left out."""
        found = []
        for upper, lower in self.uppers:
            if not lower:
                continue
            for folder, folders, files in os.walk(upper):
                inside = Path(lower, Path(folder).relative_to(upper))
                if str(inside).startswith(str(self.scratch)):
                    folders.clear()
                    continue
                found += [str(inside / name) for name in files]
                if not files and not folders and folder != str(upper):
                    found.append(str(inside) + "/")
        for path in self.root.iterdir():  # made at the top
            if not Path("/", path.name).exists():
                found.append(f"/{path.name}/")
        own = ["/etc/hosts", *self.plan["files"], *self.plan["links"]]
        ours = {path for name in own for path in (name, *map(str, Path(name).parents))}
        wrote = [
            path for path in found if path.rstrip("/") not in ours and not path.startswith(str(self.scratch))
        ]
        return sorted(wrote)[:1000]


def _set_read_only(libc: _Libc, target: Path, *, must: bool = False) -> None:
    attributes = struct.pack("QQQQ", 1, 0, 0, 0)  # MOUNT_ATTR_RDONLY
    try:
        libc.call("syscall", _MOUNT_SETATTR, -100, str(target), _AT_RECURSIVE, attributes, len(attributes))
    except OSError:
        try:
            libc.mount("none", target, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
        except OSError:
            libc.call("umount2", str(target), 2)  # better not there than writable
            if must:
                raise


def _mount_points() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        yield line.split()[4].encode().decode("unicode_escape")


def _process_one(libc: _Libc, layout: _Layout, plan: dict[str, Any], uid: int) -> None:
    scratch = Path(plan["scratch"])
    _network(plan["hosts"].values())
    libc.call("sethostname", plan["host"], len(plan["host"]))
    try:
        libc.mount("proc", layout.root / "proc", "proc", _NOSUID | _NODEV)
        with contextlib.suppress(OSError):  # a limit of this namespace alone, from Linux 6.14 on
            if _pid_max_is_ours():
                (layout.root / "proc/sys/kernel/pid_max").write_text(str(2 * _MOST_PROCESSES))
        for name in ("sys", "sysrq-trigger"):
            with contextlib.suppress(OSError):
                libc.mount(str(layout.root / "proc" / name), layout.root / "proc" / name, None, _BIND | _REC)
                _set_read_only(libc, layout.root / "proc" / name)
    except OSError:
        libc.mount("/proc", layout.root / "proc", None, _BIND | _REC)
    outside = os.open("/", os.O_RDONLY)
    os.chroot(layout.root)
    os.chdir("/")
    os.umask(plan.get("umask", 0o022))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    result = {
        "overlaid": layout.overlaid,
        "left_out": layout.left_out,
        **watch(plan, lambda: _keep_capability(libc) if uid else None),
    }
    os.fchdir(outside)
    os.chroot(".")
    result["changed"] = layout.changed()
    (scratch / "result.json").write_text(json.dumps(result))


def _pid_max_is_ours() -> bool:
    numbers = os.uname().release.split(".")[:2]
    return [int(number) for number in numbers if number.isdigit()] >= [6, 14]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() or path.is_symlink():
        path.unlink()
    path.write_text(text)
    path.chmod(0o755 if text.startswith("#!") else 0o644)


def _link(path: Path, to: str) -> None:
    """A link, or without ``to`` a folder of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if to:
        path.symlink_to(to)
    else:
        path.mkdir(mode=0o1777, exist_ok=True)


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


def _keep_capability(libc: _Libc) -> None:
    """A user who is not root keeps, over an exec, what names a host: it is worth nothing outside of the sandbox."""

    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    bits = 1 << _CAP_SYS_ADMIN
    data = (ctypes.c_uint32 * 6)(bits, bits, bits, 0, 0, 0)
    with contextlib.suppress(OSError):
        libc.call("capset", ctypes.byref(Header(0x20080522, 0)), ctypes.byref(data))
        libc.call("prctl", _PR_CAP_AMBIENT, 2, ctypes.c_ulong(_CAP_SYS_ADMIN), 0, 0)


def main_unconfined(plan_file: str) -> int:
    """Run the plan without a sandbox. Only what it has started is ended with it."""
    plan: dict[str, Any] = json.loads(Path(plan_file).read_text())
    with contextlib.suppress(OSError, AttributeError):
        _Libc().call("prctl", _PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    try:
        result = watch(plan, lambda: None)
    finally:
        _end_all(confined=False)
    left_out = plan["left_out"]
    Path(plan["scratch"], "result.json").write_text(
        json.dumps({"overlaid": False, "changed": [], "left_out": left_out, **result})
    )
    return 0


def watch(plan: dict[str, Any], in_child: Callable[[], None]) -> dict[str, Any]:
    """Start the command, adopt orphans, and end everything when it ends or must end."""
    confined = plan["confined"]
    log = Path(plan["log"])
    for name, instead in plan["instead"].items():  # nothing could be written there
        if not Path(name).exists():
            plan["argv"] = [instead if word == name else word for word in plan["argv"]]
            plan["env"] = {key: instead if value == name else value for key, value in plan["env"].items()}
    child = os.fork()
    if not child:
        try:
            os.setsid()
            in_child()
            os.chdir(plan["cwd"])
            out = os.open(plan["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT):
                signal.signal(each, signal.SIG_DFL)
            os.execve(plan["argv"][0], plan["argv"], plan["env"])
        except OSError as error:
            os.write(2, f"{plan['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127)
    deadline = time.monotonic() + plan["seconds"]
    result: dict[str, Any] = {"code": None, "ended_by": "timeout"}
    looked = 0.0
    while (now := time.monotonic()) < deadline:
        done, status = _reap()
        if done == child:
            result = {"code": os.waitstatus_to_exitcode(status), "ended_by": "itself"}
            break
        if now > looked + 0.05:
            looked = now
            if len(_all(confined)) > _MOST_PROCESSES:
                result = {"code": None, "ended_by": "processes"}
                break
        if done <= 0:
            time.sleep(0.01)
    with log.open("a") as file:
        file.write(json.dumps({"kind": "script-end", "time": time.time(), **result}) + "\n")
    # What the script has left in the background is ended with it. Here it may first be seen starting something.
    quiet = time.monotonic() + _LAST_LOOK
    while result["ended_by"] == "itself" and _all(confined) and time.monotonic() < quiet:
        if _reap()[0] < 0:
            break
        time.sleep(0.01)
    _end_all(confined)
    return result


def _end_all(confined: bool) -> None:
    while True:  # a SIGKILL to all leaves nobody who could fork; then there is only to reap
        with contextlib.suppress(OSError):
            if confined:
                os.kill(-1, signal.SIGKILL)
        for process in [] if confined else _all(confined):
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        done, _ = _reap()
        while done > 0:
            done, _ = _reap()
        if done < 0:
            return
        time.sleep(0.005)


def _all(confined: bool) -> list[int]:
    """All processes but this one: of the namespace, or else those that this one has started, or adopted."""
    if confined:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]  # noqa: PTH208
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        for tasks in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                children = [int(word) for word in tasks.read_text().split()]
                found += children
                todo += children
    return found


def _reap() -> tuple[int, int]:
    """(process, status) of one that has ended; 0: none yet; -1: there are no children."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return -1, 0
