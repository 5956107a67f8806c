"""Makes the fixtures of ``tests/explain/logs`` again: PYTHONPATH=tests python -m explain.produce [NAME…]

Needs root (pretend hosts are namespaces) and for the cases of ``cluster`` Debian's SLURM. Each case is really run;
what it printed is kept without names of this machine, with ``expected.json`` beside it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import torch

from cluster.lab import HEAD, SYSTEM_PATH, Lab
from explain.produce.case import Case
from explain.produce.cluster import CLUSTER
from explain.produce.host import HOST
from explain.produce.programs import PROGRAMS
from explain.produce.ranks import RANKS

LOGS = Path(__file__).parents[1] / "logs"
PROJECT = "/home/user/project"
# A host of its own: a name, no network but loopback, and the project in a neutral place.
_HOST = """
set -e
hostname node01; ip link set lo up
printf '127.0.0.1 localhost\\n127.0.1.1 node01\\n' > hosts; mount --bind hosts /etc/hosts; rm -f hosts
mount -t tmpfs none /home; mkdir -p {project}; mount --bind . {project}
mount -t tmpfs none /mnt
cd {project}
set +e
{command}
"""
_FRAME = re.compile(r"^(?:\S+ )?frame #([2-9]|\d\d+): .*\n", re.M)


class LimitedLab(Lab):
    """One whose jobs are killed when they use more memory than they asked for."""

    def _write_files(self) -> None:
        super()._write_files()
        etc = self._state / "etc"
        text = (etc / "slurm.conf").read_text()
        for old, new in {
            "proctrack/linuxproc": "proctrack/cgroup",
            "task/none": "task/cgroup",
            "CR_Core\n": "CR_Core_Memory\n",
            "NodeName=DEFAULT ": "NodeName=DEFAULT RealMemory=4000 ",
        }.items():
            text = text.replace(old, new)
        (etc / "slurm.conf").write_text(text)
        (etc / "cgroup.conf").write_text(
            "CgroupMountpoint=/sys/fs/cgroup\nCgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\n"
        )


def main(names: list[str]) -> None:
    cases = [case for case in (*RANKS, *PROGRAMS, *HOST, *CLUSTER) if not names or case.name in names]
    for case in cases:
        if case.where == "host":
            print(case.name, flush=True)
            on_host(case)
    for places, kind in ((("batch", "head"), Lab), (("limits",), LimitedLab)):
        if not any(case.where in places for case in cases):
            continue
        lab = kind()
        lab.up()
        try:
            for case in cases:
                if case.where in places:
                    print(case.name, flush=True)
                    in_lab(case, lab)
        finally:
            lab.down()


def on_host(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _write(case, Path(folder))
        script = _HOST.format(project=PROJECT, command=case.command)
        env = {
            "PATH": f"{sysconfig.get_path('scripts')}:{SYSTEM_PATH}",
            "HOME": "/home/user",
            "LANG": "C.UTF-8",
        }
        options = (
            "--mount",
            "--uts",
            "--net",
            "--ipc",
            "--pid",
            "--fork",
            "--kill-child=KILL",
            "--mount-proc",
        )
        subprocess.run(
            ["unshare", *options, "bash", "-c", script],
            cwd=folder,
            env=env,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        _keep(case, Path(folder))


def in_lab(case: Case, lab: Lab) -> None:
    _write(case, lab.shared)
    (lab.shared / "job.log").unlink(missing_ok=True)
    if case.where == "head":
        lab.run(HEAD, ["bash", "-c", case.command])
    else:
        job = lab.sbatch(case.command, *case.options)
        if case.name == "node-failure":
            lab.until(lambda: lab.state(job) == "RUNNING")
            lab.run("node1", ["sleep", "5"])
            lab.crash("node2")
        lab.wait(job, 150)
        lab.run("node1", ["sleep", "1"])
        (lab.shared / "job.log").write_bytes(job.log.read_bytes())
        if case.name == "node-failure":
            lab.revive("node2")
    _keep(case, lab.shared)


def _write(case: Case, folder: Path) -> None:
    for name, text in case.files.items():
        (folder / name).write_bytes(text.encode())


def _keep(case: Case, folder: Path) -> None:
    kept = LOGS / case.name
    kept.mkdir(parents=True, exist_ok=True)
    for name in case.logs:
        text = (folder / name).read_bytes().decode(errors="replace")
        (kept / name).write_bytes(neutral(text, folder).encode())
    expected = {"rank": case.rank, "signature": case.signature, "quote": case.quote}
    (kept / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


def neutral(text: str, folder: Path) -> str:
    """Without names of this machine, and without most frames of C++."""
    text = _FRAME.sub("", text)
    text = text.replace(str(folder.resolve()), PROJECT)
    text = re.sub(r"/var/spool/rankup-lab-\w+/", "/var/spool/slurmd/", text)
    text = re.sub(r"\bnode(\d)\b", r"node0\1", text)
    for path, name in {
        str(Path(torch.__file__).parents[1]): "/opt/venv/lib/python3.11/site-packages",
        sys.prefix: "/opt/venv",
        sysconfig.get_path("stdlib"): "/usr/lib/python3.11",
        sys.base_prefix: "/usr",
    }.items():
        text = text.replace(path, name)
    return re.sub(r"/tmp/(torchelastic|tmp)\w+", "/tmp/x", text)


if __name__ == "__main__":
    main(sys.argv[1:])
