"""The tools of shells and systems, and what a job starts that is none of them and that nobody has read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rankup.check.facts.job.builtins import SETTINGS
from rankup.check.facts.job.commands import Command
from rankup.check.facts.job.job import Job, NotFollowed
from rankup.check.facts.job.wrappers import unwrap

_NAME = re.compile(r"\w[\w.+:@-]*")
#: Commands that train nothing, and whose words are no command, though they may be named like one.
TOOLS = SETTINGS | frozenset(
    """
    7z [[ alias apptainer apt apt-get aria2c aws bc bg break bsub bunzip2 bzip2 ch-run chgrp chmod chown clear column
    comm command continue cpupower csplit curl dcgmi dd deactivate diff dig dirs disown dmesg dnf docker done dos2unix
    du else enroot esac eval exec fg fi find fold getconf getent getopt getopts git gpustat gsutil gunzip gzip hash
    hatch help hf host huggingface-cli hwloc-bind ibstat ibstatus ibv_devinfo ifconfig install ip ipcrm ipcs jobs jq
    kill killall ldconfig ldd let ln local logger logout lsblk lscpu lsmod lsof lspci lstopo lz4 mapfile md5sum mkfifo
    mktemp modprobe mount mpstat nc ncu netstat newgrp nohup nslookup nsys numactl nvcc nvidia-cuda-mps-control openssl
    pbsnodes pdm pgrep pidof pigz ping pip pip3 pipenv pixi pkill podman podman-hpc poetry ps qalter qdel qhold qrerun
    qrls qstat qsub quota rclone read readarray readlink return rev rmdir rocminfo rsync rye sacct sarus sbatch sbcast
    scancel scp seff service sha256sum shift shifter shopt sinfo singularity split sprio squeue ss sshare sstat stat
    stty sudo sync sysctl tac tar taskset tee then time timeout top touch tput trap tree truncate type typeset udocker
    umount unalias unlink unsquashfs unxz unzip update-alternatives uptime uv virtualenv vmstat wget xz yes zcat zip
    zstd
    """.split()  # noqa: SIM905 - a table
)


def unread(job: Job, strange: Iterable[Command]) -> Iterator[NotFollowed]:
    """What of ``strange``, programs that nobody knows, a step or a wrapper starts, or a script in the end."""
    parents = {id(one.parent) for one in job.commands}
    known = TOOLS | job.functions
    last = {
        id(one.parent): one
        for one in job.commands
        if one.argv and (id(one) in parents or one.name not in known)
        if one.function != "trap" and not one.in_output
    }
    for command in (one for one in strange if _NAME.fullmatch(one.name)):
        one: Command | None = command
        while one is not None and last.get(id(one.parent)) is one and not _is_started(one.parent):
            one = one.parent
        if one is None and not (job.scheduler and job.complete):
            continue
        if one is None or last.get(id(one.parent)) is one:
            word = command.argv[0].text
            of = "container" if command.shell.containers else "environment"
            reason = f"a command at {word}" if "/" in word else f"a command of the {of}"
            yield NotFollowed(command.name, command.span, reason)


def _is_started(parent: Command | None) -> bool:
    """Whether ``parent`` starts its command by its words: a step or a wrapper, and no shell."""
    if parent is None or parent.step is not None:
        return parent is not None
    inner = unwrap(parent.name, parent.argv)
    return inner is not None and inner.text is None and inner.script is None
