"""Jobs of the lab's PBS as a user has them: by ``rankup submit`` on the head."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pbs_lab import HEAD, PbsLab

from rankup.core.shell import Completed

RANKUP = (sys.executable, "-m", "rankup")
SITE = ("--site", "pbs", "--python", sys.executable)
FIVE_MINUTES = ("--time", "5m")


def rankup(pbs: PbsLab, *words: str, timeout: float = 60) -> Completed:
    return pbs.ask(HEAD, [*RANKUP, *words], timeout=timeout)


def submit(pbs: PbsLab, *words: str, time: tuple[str, ...] = FIVE_MINUTES) -> dict[str, Any]:
    """``rankup submit --json``: the answer, with the job's id and its run directory."""
    done = rankup(pbs, "submit", *SITE, *time, "--json", *words)
    assert done.code == 0, done.out + done.err
    answer = json.loads(done.out)
    assert isinstance(answer, dict)
    return answer


def ended(pbs: PbsLab, answer: dict[str, Any], timeout: float = 170) -> Completed:
    """``rankup logs -f``: waits for the run's end, and has its code."""
    return rankup(pbs, "logs", "-f", answer["run"], timeout=timeout)


def status(pbs: PbsLab, answer: dict[str, Any]) -> dict[str, Any]:
    done = rankup(pbs, "status", "--json", answer["run"])
    assert done.code == 0, done.out + done.err
    found = json.loads(done.out)[0]
    assert isinstance(found, dict)
    return found


def log(answer: dict[str, Any], name: str = "job.log") -> str:
    path = Path(answer["run"]) / "logs" / name
    return path.read_text() if path.exists() else ""
