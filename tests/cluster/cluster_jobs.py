"""Jobs of the lab's SLURM as a user has them: by ``rankup submit`` on the head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab import HEAD, Lab

from rankup.core.shell import Completed

SITE = ("--site", "slurm", "--time", "5m")


def rankup(cluster: Lab, *words: str, timeout: float = 240) -> Completed:
    return cluster.run(HEAD, [cluster.python, "-m", "rankup", *words], timeout=timeout)


def submit(cluster: Lab, *words: str) -> dict[str, Any]:
    """``rankup submit --json``: the answer, with the job's id and its run directory. Its ranks are warm."""
    done = rankup(cluster, "submit", *SITE, "--json", *words)
    assert done.code == 0, done.out + done.err
    answer = json.loads(done.out)
    assert isinstance(answer, dict)
    return answer


def log(answer: dict[str, Any], name: str = "job.log") -> str:
    path = Path(answer["run"]) / "logs" / name
    return path.read_text() if path.exists() else ""


def begin_again(cluster: Lab, job: str) -> None:
    """Start a requeued job soon, and not after SLURM's two minutes: when its attempt before has left the nodes, whose
    exit code would count as the new one's, and in a later second than that in which the nodes have revoked the job's
    credential: a credential of the same second is revoked as well, and the job fails after 0 s."""

    def left() -> bool:
        states = cluster.run(HEAD, ["sinfo", "--noheader", "--Node", "--format=%T"]).out.split()
        return cluster.state_of(job) == "PENDING" and set(states) == {"idle"}

    cluster.until(left)
    assert cluster.run(HEAD, ["scontrol", "update", f"JobId={job}", "StartTime=now+3"]).code == 0
