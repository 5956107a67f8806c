"""System calls that Python does not have."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
NAMESPACES = NEWNS | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
RDONLY, NOSUID, NODEV, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MOUNT_SETATTR, AT_RECURSIVE = 442, 0x8000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_CAP_AMBIENT, CAP_SYS_ADMIN = 1, 36, 47, 21


class Libc:
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
