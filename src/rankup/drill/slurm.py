"""The commands of SLURM that a drill uses."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from rankup.core.hostlist import expand
from rankup.core.shell import Completed
from rankup.core.units import clock
from rankup.drill.queue import FIVE_MINUTES_S, Ask, QueueJob, ask, submitted

_RECORD, _FIELD = "\x1e", "\x1f"
_FORMAT = _RECORD + _FIELD.join(("%i", "%T", "%r", "%N", "%Z"))
_RUNNING = ("RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "SUSPENDED", "STOPPED")
_HELD = re.compile(r"held|Hold|NeverSatisfied|SPECIAL_EXIT", re.I)
_SAID = ("JobState", "Reason", "Restarts", "ExitCode", "RunTime", "TimeLimit", "NodeList")


class SlurmQueue:
    name = "slurm"
    takes_arguments = True

    def __init__(self, ask: Ask = ask) -> None:
        self.ask = ask

    def submit(self, folder: Path, script: Path, arguments: Sequence[str], options: Sequence[str]) -> str:
        return submitted(self.ask, ["sbatch", "--parsable", *options, str(script), *arguments], folder)

    def limit(self, seconds: int) -> list[str]:
        return [f"--time={clock(seconds, days=True)}"]

    def jobs(self, folder: Path, ids: Collection[str]) -> list[QueueJob]:
        done = self.ask(["squeue", "--noheader", f"--user={os.geteuid()}", f"--format={_FORMAT}"])
        found = []
        for record in done.out.split(_RECORD)[1:]:
            job, state, reason, nodes, where = record.rstrip("\n").split(_FIELD)
            if job.partition("_")[0] in ids or Path(where).is_relative_to(folder):
                running = state in _RUNNING
                held = not running and bool(_HELD.search(f"{state} {reason}"))
                found.append(QueueJob(job, state, running, held, tuple(expand(nodes)) if nodes else ()))
        return found

    def requeue(self, job: str) -> Completed:
        return self.ask(["scontrol", "requeue", job])

    def cancel(self, job: str) -> Completed:
        return self.ask(["scancel", job])

    def signal(self, job: str, name: str) -> Completed:
        return self.ask(["scancel", "--full", f"--signal={name}", job])

    def shorten(self, job: str, seconds: int) -> Completed:
        return self.ask(["scontrol", "update", f"JobId={job}", f"TimeLimit={clock(seconds, days=True)}"])

    def record(self, job: str) -> str:
        said = dict(re.findall(r"(\w+)=(\S*)", self.ask(["scontrol", "--oneliner", "show", "job", job]).out))
        return ", ".join(f"{name} {said[name]}" for name in _SAID if said.get(name))

    def on_node(self, node: str) -> list[str]:
        return ["--nodes=1", "--ntasks=1", f"--nodelist={node}", *self.limit(FIVE_MINUTES_S)]
