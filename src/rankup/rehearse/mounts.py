"""The file system that a sandbox shows: this machine's folders as overlays; what is written lies in memory.

Where folders cannot be overlaid (older kernels), everything is read-only but a copy of the job's folder.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rankup.rehearse.copying import copy_folder
from rankup.rehearse.system_calls import (
    AT_RECURSIVE,
    BIND,
    MOUNT_SETATTR,
    NODEV,
    NOSUID,
    RDONLY,
    REC,
    REMOUNT,
    Libc,
)

_MOST_ENTRIES = 4000
_NOT_COPIED = ("proc", "sys", "dev", "run")
_MOST_TEXT = 4 << 20  # that is read of what a script wrote
MOST_BYTES = 1 << 30  # that a script may write, all in memory


class Mounts:
    """The sandbox's root: directories of this machine as overlays; what is written lies in memory."""

    def __init__(self, libc: Libc, root: Path, scratch: Path, plan: dict[str, Any]) -> None:
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
        self.libc.mount("tmpfs", memory, "tmpfs", NOSUID | NODEV, f"size={MOST_BYTES},mode=755")
        self.libc.mount("tmpfs", self.root, "tmpfs", NOSUID | NODEV, "size=64m,mode=755")
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
        for folder in map(Path, self.plan["writable"]):
            self._bind(folder, self._inside(folder))
        target = self._inside(self.scratch)
        with contextlib.suppress(OSError):
            target.mkdir(parents=True, exist_ok=True)
        self._bind(self.scratch, target)
        for folder in (memory / "disks", target / "disks"):
            folder.mkdir(exist_ok=True)
        self._bind(memory / "disks", target / "disks")
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
            # Bound as a whole it would hide what is mounted below: the homes of thousands of users, say.
            # (Without ``site`` the prefix is not that of a virtual environment.)
            own = (sys.prefix, str(Path(sys.executable).parents[1]))
            wanted = [*self.mounts, str(self.plan["folder"]), str(self.scratch), str(Path.home()), *own]
            entries = [entry for entry in entries if leads_to(entry.path, wanted)]
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
        # Before the mount: what root owns is not ours to change afterwards.
        self._add_files(f"{path}/", upper)
        if self.overlaid and self._mount_overlay(str(path), upper, work, target):
            self.uppers.append((upper, str(path)))
            return
        self.uppers.append((upper, ""))
        self._read_only(path, target)
        for file in upper.rglob("*"):  # what is not on this machine cannot be shown
            if file.is_file() and (target / file.relative_to(upper)).exists():
                self._bind(file, target / file.relative_to(upper))

    def _can_overlay(self) -> bool:
        """Whether this machine overlays folders for a user: from Linux 5.11 on, on most file systems."""
        folders = [self.scratch / "memory" / name for name in ("try", "try-upper", "try-work")]
        for folder in folders:
            folder.mkdir()
        target, upper, work = folders
        if not self._mount_overlay("/usr", upper, work, target):
            return False
        self.libc.call("umount2", str(target), 2)
        return True

    def _mount_overlay(self, lower: str, upper: Path, work: Path, target: Path) -> bool:
        escaped = lower.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
        folders = f"lowerdir={escaped},upperdir={upper},workdir={work}"
        for more in (",userxattr", ""):
            with contextlib.suppress(OSError):
                self.libc.mount("overlay", target, "overlay", NODEV, folders + more)
                return True
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
        self.libc.mount(str(source), target, None, BIND | (REC if recursive else 0))

    def _read_only(self, source: Path, target: Path) -> None:
        try:
            self.libc.mount(str(source), target, None, BIND)
        except OSError:
            return
        set_read_only(self.libc, target)

    def _devices(self) -> None:
        dev = self.root / "dev"
        self.libc.mount("tmpfs", dev, "tmpfs", NOSUID, "size=256m,mode=755")
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
            self.libc.mount("devpts", dev / "pts", "devpts", NOSUID, "newinstance,ptmxmode=0666,mode=620")
            (dev / "ptmx").symlink_to("pts/ptmx")
        with contextlib.suppress(OSError):  # programs ask it for CPUs and the like
            self._bind(Path("/sys"), self.root / "sys", recursive=True)
            set_read_only(self.libc, self.root / "sys", must=True)

    def changed(self) -> list[str]:
        """What the command wrote, as paths of this machine, without the rehearsal's own files and without what Python's
        import writes."""
        found = []
        for upper, lower in self.uppers:
            if not lower:
                continue
            for folder, folders, files in os.walk(upper):
                inside = Path(lower, Path(folder).relative_to(upper))
                if str(inside).startswith(str(self.scratch)) or inside.name == "__pycache__":
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

    def written(self, changed: Iterable[str]) -> list[str]:
        """The texts that the command added to files: one of them may be where its messages went."""
        texts, left = [], _MOST_TEXT
        for path in changed:
            for upper, lower in self.uppers:
                file = upper / os.path.relpath(path, lower) if lower and leads_to(lower, [path]) else upper
                with contextlib.suppress(OSError):
                    if file.is_symlink() or not file.is_file() or file.stat().st_size > left:
                        continue
                    data, before = file.read_bytes(), Path(path)
                    if before.is_file():
                        data = data.removeprefix(before.read_bytes())
                    left -= len(data)
                    texts += [] if b"\0" in data else [data.decode(errors="replace")]
        return texts


def leads_to(path: str, wanted: Iterable[str]) -> bool:
    """Whether ``path`` is one of the ``wanted`` paths, or a folder on the way to one."""
    return any(one == path or one.startswith(f"{path}/") for one in wanted)


def set_read_only(libc: Libc, target: Path, *, must: bool = False) -> None:
    attributes = struct.pack("QQQQ", 1, 0, 0, 0)  # MOUNT_ATTR_RDONLY
    try:
        libc.call("syscall", MOUNT_SETATTR, -100, str(target), AT_RECURSIVE, attributes, len(attributes))
    except OSError:
        try:
            libc.mount("none", target, None, REMOUNT | BIND | RDONLY | NOSUID | NODEV)
        except OSError:
            libc.call("umount2", str(target), 2)  # better not there than writable
            if must:
                raise


def _mount_points() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        yield line.split()[4].encode().decode("unicode_escape")


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
