"""The commands of PBS that a drill uses."""

from __future__ import annotations

import getpass
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from rankup.core.shell import Completed
from rankup.core.units import clock
from rankup.drill.queue import FIVE_MINUTES_S, Ask, QueueJob, ask, submitted
from rankup.schedulers.pbs.qstat import Attributes, read_qstat

_RUNNING = ("R", "E", "B", "S", "U")
_SAID = (
    "job_state",
    "Exit_status",
    "run_count",
    "comment",
    "Resource_List.walltime",
    "resources_used.walltime",
)


class PbsQueue:
    name = "pbs"
    takes_arguments = False

    def __init__(self, ask: Ask = ask) -> None:
        self.ask = ask

    def submit(self, folder: Path, script: Path, arguments: Sequence[str], options: Sequence[str]) -> str:
        return submitted(self.ask, ["qsub", *options, str(script)], folder)

    def limit(self, seconds: int) -> list[str]:
        return ["-l", f"walltime={clock(seconds)}"]

    def jobs(self, folder: Path, ids: Collection[str]) -> list[QueueJob]:
        jobs = read_qstat(self.ask(["qstat", "-f", "-F", "json"]).out) or read_qstat(
            self.ask(["qstat", "-f"]).out
        )
        return [
            _queue_job(job, said)
            for job, said in jobs.items()
            if job in ids
            or (
                said.get("Job_Owner", "").startswith(f"{getpass.getuser()}@")
                and _submitted_from(folder, said)
            )
        ]

    def requeue(self, job: str) -> Completed:
        done = self.ask(["qrerun", job])
        # It waits for the job's nodes, and not for long.
        return Completed(0, done.out, "") if "still in progress" in done.err else done

    def cancel(self, job: str) -> Completed:
        return self.ask(["qdel", job])

    def signal(self, job: str, name: str) -> Completed:
        return self.ask(["qsig", "-s", f"SIG{name}", job])

    def shorten(self, job: str, seconds: int) -> Completed:
        return self.ask(["qalter", "-l", f"walltime={clock(seconds)}", job])

    def record(self, job: str) -> str:
        said = next(iter(read_qstat(self.ask(["qstat", "-x", "-f", job]).out).values()), {})
        return ", ".join(f"{name} {said[name]}" for name in _SAID if said.get(name))

    def on_node(self, node: str) -> list[str]:
        return ["-l", f"select=1:ncpus=1:host={node}", *self.limit(FIVE_MINUTES_S)]


def _queue_job(job: str, said: Attributes) -> QueueJob:
    state = said.get("job_state", "")
    nodes = re.findall(r"(?:^|\+)([\w.-]+)/", said.get("exec_host", ""))
    return QueueJob(job, state, state in _RUNNING, state == "H", tuple(dict.fromkeys(nodes)))


def _submitted_from(folder: Path, said: Attributes) -> bool:
    where = said.get("Variable_List.PBS_O_WORKDIR") or ""
    if not where:
        found = re.search(r"PBS_O_WORKDIR=([^,]*)", said.get("Variable_List", ""))
        where = found[1] if found else ""
    return bool(where) and Path(where).is_relative_to(folder)
