"""Commands that answer for the pretended cluster, or are noted and not done: a row for each way to call one."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankup.core.hostlist import compress, expand
from rankup.core.units import clock
from rankup.errors import RankupError
from rankup.rehearse import pbs_env
from rankup.rehearse.stand_ins.context import Here

_LONGEST_SLEEP = 3600.0
_SHORTENED = 0.3
_NOT_DONE = "noted, not done"
_ANOTHER = "submits another job; noted, not done"
_RUNNERS = {
    "-n",
    "--name",
    "-p",
    "--prefix",
    "--cwd",
    "--with",
    "--extra",
    "--python",
    "--project",
    "--directory",
}


@dataclass(frozen=True)
class Row:
    """What ``names`` do if their words begin with ``words``, a pattern; the first row that fits counts.

    ``prints`` is a text with names of ``values``, or what writes it; with ``{host}`` it is printed for each host.
    ``note`` follows the command line in the report. ``does`` is for what no text can say; it returns the exit code.
    """

    names: str
    words: str = ""
    prints: str | Callable[[Here], str] = ""
    note: str = ""
    code: str = "noted"
    does: Callable[[Here], int] | None = None


def main(here: Here) -> int:
    if here.name in f"{_SLURM} {_PBS}".split() and (code := here.ask_scheduler()) is not None:
        return code
    words = " ".join(here.args)
    row = next(row for row in ROWS if here.name in row.names.split() and re.match(row.words, words))
    if row.note:
        here.note(f"{here.name} {words}".rstrip()[:200] + f": {row.note}", row.code)
    if row.does is not None:
        return row.does(here)
    if row.prints:
        print(row.prints(here) if callable(row.prints) else _filled(row.prints, here), flush=True)
    return 0


def values(here: Here) -> dict[str, Any]:
    """What the texts of rows may name."""
    job, times = here.job, here.scenario
    end, start = times.started + times.time, times.started
    return {
        "job_id": job.job_id, "pbs_id": pbs_env.job_id(times), "job_name": job.job_name, "user": times.user,
        "partition": job.partition, "num_nodes": job.num_nodes, "nodelist": compress(job.hosts), "first": job.hosts[0],
        "exec_host": "+".join(f"{host}/0" for host in job.hosts), "limit": clock(times.time, days=True),
        "walltime": clock(times.time), "left": clock(max(0, int(end - time.time())), days=True), "start": _date(start),
        "started": time.ctime(start), "end": _date(end), "cpus": sum(job.cpus), "tasks": sum(job.tasks_per_node()),
        "restarts": times.restarts, "folder": times.folder, "address": job.address(here.host), "name": here.host,
        "short": here.host.partition(".")[0], "version": "{}.{:02}".format(*times.slurm_version),
        "last": here.args[-1] if here.args else "", "gpus": here.gpus,
    }  # fmt: skip


def _filled(text: str, here: Here) -> str:
    known = values(here)
    if "{host}" not in text:
        return text.format(**known)
    hosts = [host for word in here.args[2:] if word[0] != "-" for host in expand(word)] or here.job.hosts
    return "\n".join(text.format(**known, host=host, at=here.job.address(host)) for host in hosts)


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


# ---- What no text can say


def _real(here: Here) -> int:
    here.run_real(here.name)


def _unknown(here: Here) -> int:
    here.note(f"{here.args[0]} is not on this machine: it was taken for a command that works", "unknown")
    return 0


def _run_inside(here: Here) -> int:
    """``conda run``, ``uv run``: the command, with the Python of this machine."""
    rest = here.args[1:]
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in _RUNNERS else rest[1:]
    if rest and rest[0].endswith(".py"):
        rest = ["python", *rest]
    os.execvpe(rest[0], rest, here.env)


def _end_by_name(here: Here) -> int:
    """That nothing is left is no failure. Without a sandbox it would end processes that are none of the script's."""
    path = here.real(here.name)
    if path is not None and here.scenario.confined:
        # The words are no arguments of this process, which -f would find.
        env = {**here.env, "RANKUP_REHEARSE_WORDS": shlex.join([path, *here.args])}
        os.execve("/bin/sh", ["sh", "-c", 'eval "$RANKUP_REHEARSE_WORDS" || :'], env)
    return 0


def _hostnames(here: Here) -> int:
    """Without a list it shows SLURM_JOB_NODELIST's."""
    lists = here.args[2:] or [here.env.get("SLURM_JOB_NODELIST", "")]
    try:
        hosts = [host for text in lists for host in expand(text)]
    except RankupError:
        here.fail("Invalid hostlist: " + " ".join(lists))
    if not hosts:
        here.fail("SLURM_JOB_NODELIST is not set: no hosts")
    print("\n".join(hosts))
    return 0


def _squeue(here: Here) -> int:
    known = values(here)
    letters = {
        "i": "job_id", "A": "job_id", "e": "end", "S": "start", "N": "nodelist", "R": "nodelist", "D": "num_nodes",
        "L": "left", "l": "limit", "j": "job_name", "P": "partition", "u": "user", "C": "cpus", "B": "first",
    }  # fmt: skip
    shown = {"T": "RUNNING", "t": "R", "M": "0:01"} | {one: str(known[name]) for one, name in letters.items()}
    form = _option(here.args, "o", "format") or "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
    if not any(re.fullmatch("--noheader|-[a-zA-Z]*h[a-zA-Z]*", word) for word in here.args):
        print(form.replace("%", ""))
    unknown = sorted({letter for letter in re.findall(r"%[.\d-]*([a-zA-Z])", form) if letter not in shown})
    if unknown:
        names = ", ".join("%" + one for one in unknown)
        here.note(f"squeue {' '.join(here.args)}: the rehearsal does not know {names}", "unknown")
    print(re.sub(r"%[.\d-]*([a-zA-Z])", lambda match: shown.get(match[1], ""), form))
    return 0


def _option(args: list[str], short: str, long: str) -> str | None:
    for index, word in enumerate(args):
        if word in (f"-{short}", f"--{long}"):
            return args[index + 1] if index + 1 < len(args) else None
        if word.startswith(f"--{long}="):
            return word.partition("=")[2]
        if re.match(rf"-[a-zA-Z]*{short}.+", word) and not word.startswith("--"):
            return word[word.index(short) + 1 :]
    return None


def _look_up(here: Here) -> int:
    """dig, host, nslookup: the addresses of the job's hosts."""
    name = next((word for word in here.args if not word.startswith(("-", "+", "@"))), "")
    known = {host.partition(".")[0]: here.job.address(host) for host in here.job.hosts}
    address = known.get(name.partition(".")[0])
    if address is None:
        here.note(f"{here.name} {name}: there is no name server in a rehearsal", "unknown")
        return 1
    print(address if here.name == "dig" else f"{name} has address {address}")
    return 0


def _interface(here: Here) -> int:
    """Every interface that is asked for has the node's address."""
    asked = ("show", "dev", "up", "scope", "global", "list", "a", "addr", "address")
    device = next((word for word in here.args if word not in asked and not word.startswith("-")), "eth0")
    one_line = any(re.fullmatch(r"-\w*o\w*|-oneline|-br\w*", word) for word in here.args)
    address = here.job.address(here.host)
    if here.name == "ifconfig":
        print(f"{device}: flags=4163<UP,RUNNING>  mtu 1500\n        inet {address}  netmask 255.255.0.0")
        return 0
    if not one_line:
        print(f"2: {device}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500")
    print(f"{f'2: {device}' if one_line else ''}    inet {address}/16 brd 10.0.255.255 scope global {device}")
    return 0


def _nproc(here: Here) -> int:
    job, env = here.job, here.env
    count = job.cpus[job.hosts.index(here.host)] if here.host in job.hosts else 1
    if "SLURM_STEP_ID" in env:
        count = int(env.get("SLURM_CPUS_ON_NODE", str(count)))
        tasks = len(env.get("SLURM_GTIDS", "0").split(","))
        count = max(1, count // tasks) if count % tasks == 0 else count
    if env.get("OMP_NUM_THREADS", "").isdigit() and "--all" not in here.args:
        count = int(env["OMP_NUM_THREADS"])
    print(count)
    return 0


def _nvidia_smi(here: Here) -> int:
    count, text = here.gpus, " ".join(here.args)
    if not count:
        print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
        return 9
    if re.search(r"(^| )(-L|--list-gpus)\b", text):
        for index in range(count):
            print(f"GPU {index}: Pretended GPU (UUID: GPU-{index:08d}-0000-0000-0000-000000000000)")
    elif match := re.search(r"--query-gpu[= ](\S+)", text):
        known = {
            "index": "{0}", "name": "Pretended GPU", "gpu_name": "Pretended GPU", "count": str(count),
            "memory.total": "81920 MiB", "memory.used": "0 MiB", "memory.free": "81920 MiB", "uuid": "GPU-{0:08d}",
            "driver_version": "550.54", "compute_cap": "9.0",
        }  # fmt: skip
        if "noheader" not in text:
            print(match[1].replace(",", ", "))
        for index in range(count):
            print(", ".join(known.get(field, "0").format(index) for field in match[1].split(",")))
    elif "-q" not in here.args:
        print(f"NVIDIA-SMI 550.54   Driver Version: 550.54   CUDA Version: 12.4   ({count} pretended GPUs)")
    if re.search(r"--loop|(^| )-l(=| |\d|$)|(^| )dmon|(^| )pmon", text):
        time.sleep(86400)
    return 0


def _rocm_smi(here: Here) -> int:
    for index in range(here.gpus):
        print(f"GPU[{index}]\t\t: Card series: Pretended GPU")
    return 0


def _sleep(here: Here) -> int:
    """Waiting between two commands is shortened; a timer in the background, and what never ends, are not."""
    seconds = 0.0
    for word in here.args:
        match = re.fullmatch(r"(?:(\d+\.?\d*|\.\d+)([smhd]?)|inf(?:inity)?)", word)
        if match is None:
            here.fail(f"sleep: invalid time interval '{word}'")
        seconds += float(match[1] or "inf") * {"m": 60, "h": 3600, "d": 86400}.get(match[2] or "", 1)
    here.record("sleep", seconds=min(seconds, 1e9))
    if here.background or seconds > _LONGEST_SLEEP or here.scenario.for_real:
        while seconds > 0:
            time.sleep(min(seconds, 3600.0))
            seconds -= 3600.0
        return 0
    if seconds > 2:
        here.note(f"sleep {' '.join(here.args)}: shortened")
    time.sleep(min(seconds, _SHORTENED))
    return 0


_JOB = """JobId={job_id} JobName={job_name}
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit={limit} TimeMin=N/A
   StartTime={start} EndTime={end} Deadline=N/A
   Partition={partition} AllocNode:Sid=login:0
   NodeList={nodelist}
   BatchHost={first}
   NumNodes={num_nodes} NumCPUs={cpus} NumTasks={tasks}
   Command={folder}/job.sh
   WorkDir={folder}"""
_PBS_JOB = """Job Id: {pbs_id}
    Job_Name = {job_name}
    job_state = R
    queue = {partition}
    exec_host = {exec_host}
    Resource_List.walltime = {walltime}
    stime = {started}
"""
_CONDA = "conda mamba micromamba"
_FLAGS = r"(?:-\S+ )*"
_SLURM = "scontrol squeue sinfo sbatch sbcast salloc scancel sacct sstat sgather sattach"
_PBS = "qstat qsub pbsnodes qdel qalter qsig qhold qrls qrerun qmsg"

ROWS = (
    # What a job script asks SLURM and PBS.
    Row("scontrol", _FLAGS + "show hostn", does=_hostnames),
    Row("scontrol", _FLAGS + "show hostlist", prints=lambda here: compress(expand(here.args[-1]))),
    Row("scontrol", _FLAGS + "show job", prints=_JOB),
    Row("scontrol", _FLAGS + "show node", prints="NodeName={host} Arch=x86_64\n   NodeAddr={at} NodeHostName={host}\n"
        "   State=ALLOCATED"),
    Row("scontrol", _FLAGS + "show config", prints="SLURM_VERSION = {version}.0"),
    Row("squeue", does=_squeue),
    Row("sinfo", prints="{partition}* up infinite {num_nodes} alloc {nodelist}"),
    Row("sbatch", ".*--parsable", prints="4712", note=_ANOTHER),
    Row("sbatch", prints="Submitted batch job 4712", note=_ANOTHER),
    Row("sbcast", note="copies a file to all nodes; noted, not done"),
    Row("qstat", r"(?:.* )?-f\b", prints=_PBS_JOB),
    Row("qstat", prints="{pbs_id}  {job_name}  {user}  00:00:00 R {partition}"),
    Row("qsub", prints="4712.head", note=_ANOTHER),
    Row("pbsnodes", prints="{host}\n     Mom = {host}\n     state = job-busy"),
    # A node of it.
    Row("hostname", r"(?:.* )?(?:-i|--ip-address)", prints="{address}"),
    Row("hostname", r"(?:.* )?(?:-I|--all-ip)", prints="{address} "),
    Row("hostname", r"(?:.* )?-d", prints=lambda _: ""),
    Row("hostname", r"(?:.* )?(?:-s|--short)", prints="{short}"),
    Row("hostname", prints="{name}"),
    Row("ip", _FLAGS + r"r\w* (?:.* )?get\b", prints="{last} dev eth0 src {address} uid 0"),
    Row("ip", _FLAGS + r"r", prints="default via 10.0.255.1 dev eth0\n10.0.0.0/16 dev eth0 proto kernel src {address}"),
    Row("ip", _FLAGS + r"a", does=_interface),
    Row("ifconfig", does=_interface),
    Row("dig host nslookup", does=_look_up),
    Row("nproc", does=_nproc),
    Row("nvidia-smi", does=_nvidia_smi),
    Row("rocm-smi", does=_rocm_smi),
    Row("sleep", does=_sleep),
    Row("pkill killall", note="taken for a command that works", does=_end_by_name),
    # Environments.
    Row("module", "(?:list|avail|spider|show|whatis)"),
    Row("module " + _CONDA, r"shell\.bash", prints=": # conda's functions are those of the rehearsal"),
    Row(_CONDA, ".*info.*--base", prints="/opt/conda"),
    Row(_CONDA + " uv poetry pixi", r"run\b", note="runs with the Python of this machine", does=_run_inside),
    Row("module " + _CONDA, note="sets nothing here", code="module"),
    Row("git", r"(?!(?:.* )?(?:clone|fetch|pull|push|lfs|submodule|remote|ls-remote)\b)", does=_real),
    Row("unknown-command", does=_unknown),
    # All others: the network, installers, what is not a user's to do.
    Row(
        f"{_SLURM} {_PBS} ip ml git pip pip3 wget curl aria2c scp sftp ftp rclone gsutil gcloud aws az azcopy kaggle "
        "huggingface-cli hf wandb apt apt-get yum dnf brew spack eb npm uv pipx poetry pixi mail mailx sendmail sudo "
        "su shutdown reboot mount umount systemctl telnet nc rsync-ssl globus nvidia-cuda-mps-control dcgmi ray",
        note=_NOT_DONE,
    ),
)  # fmt: skip
NAMES = tuple(dict.fromkeys(name for row in ROWS for name in row.names.split()))
