"""``hostname``, ``ip``, ``nproc``, ``nvidia-smi``, ``dig``, ``sleep``: a pretended node's answers."""

from __future__ import annotations

import os
import re
import shlex
import time

from rankup.rehearse.stand_ins.context import Here

_LONGEST_SLEEP = 3600.0
_SHORTENED = 0.3


def main(here: Here) -> int:
    names = {
        "hostname": _hostname,
        "ip": _ip,
        "nproc": _nproc,
        "nvidia-smi": _nvidia_smi,
        "sleep": _sleep,
        "rocm-smi": _rocm_smi,
        "pkill": _end_by_name,
        "killall": _end_by_name,
    }
    return names.get(here.name, _look_up)(here)


def _hostname(here: Here) -> int:
    flags = "".join(word for word in here.args if word.startswith("-"))
    address = here.job.address(here.host)
    if re.search(r"-i|--ip-address", flags):
        print(address)
    elif re.search(r"-I|--all-ip", flags):
        print(f"{address} ")
    elif "-d" in flags:
        print()
    elif "-s" in flags or "--short" in flags:
        print(here.host.partition(".")[0])
    else:
        print(here.host)
    return 0


def _look_up(here: Here) -> int:
    """dig, host, nslookup: the addresses of the job's hosts."""
    name = next((word for word in here.args if not word.startswith(("-", "+", "@"))), "")
    short = name.partition(".")[0]
    if short not in [host.partition(".")[0] for host in here.job.hosts]:
        here.note(f"{here.name} {name}: there is no name server in a rehearsal", "unknown")
        return 1
    address = here.job.address(next(host for host in here.job.hosts if host.partition(".")[0] == short))
    print(address if here.name == "dig" else f"{name} has address {address}")
    return 0


def _ip(here: Here) -> int:
    """``ip route get`` and ``ip addr show``; every interface that is asked for has the node's address."""
    words = [word for word in here.args if not word.startswith("-")]
    address = here.job.address(here.host)
    if words[:1] and "route".startswith(words[0]):
        if "get" in words:
            to = words[words.index("get") + 1] if len(words) > words.index("get") + 1 else ""
            print(f"{to} dev eth0 src {address} uid 0")
        else:
            print(
                f"default via 10.0.255.1 dev eth0\n10.0.0.0/16 dev eth0 proto kernel scope link src {address}"
            )
        return 0
    if words[:1] and ("address".startswith(words[0]) or words[0] == "addr"):
        rest = [word for word in words[1:] if word not in ("show", "dev", "up", "scope", "global", "list")]
        device = rest[0] if rest else "eth0"
        one_line = any(re.fullmatch(r"-\w*o\w*|-oneline|-br\w*", word) for word in here.args)
        if not one_line:
            print(f"2: {device}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500")
            print(f"    inet {address}/16 brd 10.0.255.255 scope global {device}")
        else:
            print(f"2: {device}    inet {address}/16 brd 10.0.255.255 scope global {device}")
        return 0
    here.note(f"{' '.join([here.name, *here.args])}: noted, not done")
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


def _visible(here: Here) -> int:
    job = here.job
    return job.gpus[job.hosts.index(here.host)] if here.host in job.hosts else 0


def _nvidia_smi(here: Here) -> int:
    count = _visible(here)
    if not count:
        print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
        return 9
    text = " ".join(here.args)
    if re.search(r"(^| )(-L|--list-gpus)\b", text):
        for index in range(count):
            print(f"GPU {index}: Pretended GPU (UUID: GPU-{index:08d}-0000-0000-0000-000000000000)")
    elif match := re.search(r"--query-gpu[= ](\S+)", text):
        known = {
            "index": "{0}", "name": "Pretended GPU", "gpu_name": "Pretended GPU", "count": str(count),
            "memory.total": "81920 MiB",
            "memory.used": "0 MiB", "memory.free": "81920 MiB", "uuid": "GPU-{0:08d}", "driver_version": "550.54",
            "compute_cap": "9.0",
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
    for index in range(_visible(here)):
        print(f"GPU[{index}]		: Card series: Pretended GPU")
    return 0


def _end_by_name(here: Here) -> int:
    """Here programs have ended that would still run on the cluster: that nothing is left is no failure.

    Without a sandbox it would end processes of the user that are none of the script's.
    """
    here.note(f"{' '.join([here.name, *here.args])}: taken for a command that works")
    path = here.real(here.name)
    if path is not None and here.scenario.confined:
        # The words are no arguments of this process, which -f would find.
        env = {**here.env, "RANKUP_REHEARSE_WORDS": shlex.join([path, *here.args])}
        os.execve("/bin/sh", ["sh", "-c", 'eval "$RANKUP_REHEARSE_WORDS" || :'], env)
    return 0


def _sleep(here: Here) -> int:
    """Waiting between two commands is shortened; a timer in the background, and what never ends, are not."""
    seconds = 0.0
    for word in here.args:
        match = re.fullmatch(r"(\d+\.?\d*|\.\d+)([smhd]?)", word)
        if match is None:
            if word in ("infinity", "inf"):
                seconds = float("inf")
                continue
            here.fail(f"sleep: invalid time interval '{word}'")
        seconds += float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
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
