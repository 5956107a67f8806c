"""Runs a command as a process of another host: with that host's name, where the system allows it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from typing import NoReturn

from rankup.rehearse.stand_ins import answers
from rankup.rehearse.stand_ins.context import HOST, Here
from rankup.rehearse.system_calls import NEWUTS, Libc


def main(here: Here) -> NoReturn:
    """``on_host HOST FOLDER COMMAND…``"""
    host, folder, *argv = here.args
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            Libc().call("unshare", NEWUTS)
            Libc().call("sethostname", host, len(host.encode()))
    os.environ[HOST] = host
    for each in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(each, signal.SIG_DFL)
    try:
        os.chdir(folder)
    except OSError as error:
        here.complain(
            f"slurmstepd: error: couldn't chdir to `{folder}': {error.strerror}: going to /tmp instead"
        )
        os.chdir("/tmp")
    path = argv[0] if "/" in argv[0] else shutil.which(argv[0])
    if path is None:
        here.name, here.args = "unknown-command", argv
        raise SystemExit(answers.main(here))
    try:
        os.execv(path, argv)
    except OSError as error:
        if error.errno == 8:  # a script without its first line: as a shell does it
            os.execv("/bin/sh", ["sh", path, *argv[1:]])
        here.fail(f"slurmstepd: error: execve(): {argv[0]}: {error.strerror}", 13 if error.errno == 13 else 2)
