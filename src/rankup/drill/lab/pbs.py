"""A real PBS on the hosts of a lab: an OpenPBS that is installed already, under ``PBS_EXEC`` or /opt/pbs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from rankup.drill.lab.lab import HEAD, SYSTEM_PATH, Lab
from rankup.drill.lab.users import User

PBS_EXEC = Path(os.environ.get("PBS_EXEC", "/opt/pbs"))
# What a site's administrator would say: GPUs are counted, jobs that ended are remembered, a job that has lost its first
# node is requeued after 20 s, and the scheduler looks every 10 s. Root may have jobs, as in a SLURM.
_SETTINGS = """\
create resource ngpus type=long,flag=hn
set server acl_roots = root@*
set server flatuid = True
set server job_history_enable = True
set server job_requeue_timeout = 10
set server node_fail_requeue = 20
set server scheduler_iteration = 10
set server scheduling = True
"""
_UP = {"free", "job-busy", "job-exclusive", "busy", "resv-exclusive"}


class PbsLab(Lab):
    """``resources``: names of what jobs ask for besides CPUs, GPUs and memory; they are accepted, and not counted.
    Its usual queue is ``workq``."""

    kind, title = "pbs", "PBS"
    path = f"{PBS_EXEC}/bin:{PBS_EXEC}/sbin:{SYSTEM_PATH}"
    needs: ClassVar = {
        "pbs_server.bin": f"an OpenPBS in {PBS_EXEC} (PBS_EXEC names its folder)",
        "psql": "postgresql",
    }

    def __init__(self, nodes: int = 2, *, resources: Sequence[str] = (), **sizes: Any) -> None:
        super().__init__(nodes, **sizes)
        self._resources = resources

    def up_nodes(self) -> set[str]:
        said = self.run(HEAD, ["pbsnodes", "-a", "-F", "json"], timeout=10).out
        try:
            nodes = json.loads(said)["nodes"]
        except (ValueError, KeyError):
            return set()
        return {name for name, node in nodes.items() if {*node["state"].split(",")} <= _UP}

    def manage(self, commands: str) -> str:
        """Have qmgr do all of ``commands``, as root. What it said of those that it refuses."""
        done = self.run(HEAD, ["qmgr"], text=commands)
        return "" if done.code == 0 else done.out + done.err

    def let_preempt(self, user: User) -> None:
        self.manage(f"set server operators = {user.name}@*\n")

    def _write_files(self) -> None:
        super()._write_files()
        etc = self._state / "etc"
        # The background part of a qsub, which the next one uses, belongs to one host: it is found in /tmp.
        (etc / "pbs.conf").write_text(f"PBS_EXEC={PBS_EXEC}\nPBS_SERVER={HEAD}\nPBS_TMPDIR=/tmp\n")
        (etc / "profile.d" / "pbs.sh").write_text(f"PATH=$PATH:{PBS_EXEC}/bin\n")

    def _set_up(self) -> None:
        # The server has run before that, to set itself up.
        began = self._state / f"pbs-{HEAD}" / "pbs_version"
        self._until(
            lambda: began.exists() and self.run(HEAD, ["qstat", "-B"], timeout=5).code == 0,
            "its server does not answer",
            300,
        )
        nodes = [
            f"create node {node}\nset node {node} resources_available.ncpus = {self.cpus}\n"
            f"set node {node} resources_available.ngpus = {self.gpus}\n"
            f"set node {node} resources_available.mem = {self.memory}mb\n"
            for node in self.nodes
        ]
        queues = [
            f"create queue {name} queue_type = Execution, enabled = True, started = True\n"
            for name in self.queues
        ]
        if refused := self.manage(_SETTINGS + "".join(nodes + queues)):
            raise self._not_up(refused)
        # Those that PBS has already are refused, which does no harm.
        self.manage("".join(f"create resource {name} type=string,flag=h\n" for name in self._resources))
        # The scheduler reads anew what it has to count.
        self.run(HEAD, ["pkill", "-HUP", "-f", f"{PBS_EXEC}/sbin/pbs_sched"])
