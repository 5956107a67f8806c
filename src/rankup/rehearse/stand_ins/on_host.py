"""Runs a command as a process of another host: with that host's name, where the system allows it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from rankup.rehearse.stand_ins import noted
from rankup.rehearse.stand_ins.context import HOST, Here

_CLONE_NEWUTS = 0x04000000


def main(here: Here) -> NoReturn:
    """``on_host HOST FOLDER COMMAND…``"""
    host, folder, *argv = here.args
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWUTS) == 0:
            libc.sethostname(host.encode(), len(host.encode()))
    os.environ[HOST] = host
    for each in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(each, signal.SIG_DFL)
    try:
        os.chdir(folder)
    except OSError as error:
        print(
            f"slurmstepd: error: couldn't chdir to `{folder}': {error.strerror}: going to /tmp instead",
            file=sys.stderr,
        )
        os.chdir("/tmp")
    if "/" not in argv[0]:
        found = [
            str(path)
            for path in (
                Path(one or ".", argv[0]) for one in os.environ.get("PATH", "").split(os.pathsep) if one
            )
            if path.is_file() and os.access(path, os.X_OK)
        ]
        if not found:
            here.name, here.args = "unknown-command", argv
            raise SystemExit(noted.main(here))
        path = found[0]
    else:
        path = argv[0]
    try:
        os.execv(path, argv)
    except OSError as error:
        if error.errno == 8:  # a script without its first line: as a shell does it
            os.execv("/bin/sh", ["sh", path, *argv[1:]])
        here.fail(f"slurmstepd: error: execve(): {argv[0]}: {error.strerror}", 13 if error.errno == 13 else 2)
