"""Runs a command as a process of another host: with that host's name, where the system allows it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import NoReturn

from rankup.rehearse import pbs_env
from rankup.rehearse.scenario import Scenario
from rankup.rehearse.stand_ins import answers
from rankup.rehearse.stand_ins.context import HOST, Here
from rankup.rehearse.system_calls import BIND, NEWNS, NEWUTS, REC, Libc


def main(here: Here) -> NoReturn:
    """``on_host HOST FOLDER COMMAND…``"""
    host, folder, *argv = here.args
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            other = os.uname().nodename != host
            Libc().call("unshare", NEWUTS)
            Libc().call("sethostname", host, len(host.encode()))
            if here.scenario.confined and other:
                _own_disk(Libc(), here.scenario, host)
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


def _own_disk(libc: Libc, scenario: Scenario, host: str) -> None:
    """Another node has on its own disks what this machine has there, and not what the job has put onto the first's."""
    of_job = [pbs_env.local_disk(scenario)] if scenario.allocation.scheduler != "slurm" else []
    before = set(scenario.in_tmp)
    ours = (scenario.scratch, scenario.folder, Path(scenario.python), Path(scenario.source))
    libc.call("unshare", NEWNS)
    for disk in map(Path, ["/tmp", *of_job]):
        own = scenario.disks / f"{host}-{disk.name}"
        own.mkdir(exist_ok=True)
        own.chmod(0o1777)
        for entry in os.scandir(disk):
            with contextlib.suppress(OSError):  # others remove theirs meanwhile
                needed = any(path.is_relative_to(entry.path) for path in ours)
                # Not by its times, which change where stand-ins lie over the commands of an environment.
                if entry.is_symlink() or not (needed or entry.path in before):
                    continue
                if entry.is_dir():
                    (own / entry.name).mkdir(exist_ok=True)
                else:
                    (own / entry.name).touch()
                libc.mount(entry.path, own / entry.name, None, BIND | REC)
        libc.mount(str(own), disk, None, BIND | REC)
