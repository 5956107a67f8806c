"""When a job would start, by ``qstat -f``: PBS estimates the starts of jobs in the queue, and of no others.

So the answer is that of the user's own queued job on as many nodes. A site has to turn estimates on
(``est_start_time_freq``).
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Mapping

from rankup.core.shell import Completed
from rankup.errors import RankupError
from rankup.schedulers.error_table import explain_error
from rankup.schedulers.pbs.errors import UNREACHABLE
from rankup.schedulers.pbs.qstat import read_qstat
from rankup.spec.jobspec import JobSpec

_ESTIMATE, _NODES = "estimated.start_time", "Resource_List.nodect"


START_COMMAND = ("qstat", "-f", "-F", "json")


def read_start(done: Completed, spec: JobSpec) -> float:
    if done.code != 0:
        raise explain_error(done, UNREACHABLE, "qstat")
    owner = f"{getpass.getuser()}@"
    queued = [
        values
        for values in read_qstat(done.out).values()
        if values.get("Job_Owner", "").startswith(owner)
        and values.get("job_state") == "Q"
        and values.get(_NODES) == str(spec.nodes)
        and (not spec.queue or values.get("queue") == spec.queue)
    ]
    if not queued:
        raise RankupError(
            "start-unknown",
            f"PBS estimates only jobs in the queue, and you have none there on {spec.nodes} "
            f"node{'s' * (spec.nodes > 1)}",
        )
    starts = [start for values in queued if (start := _start(values)) is not None]
    if not starts:
        raise RankupError(
            "start-unknown", "PBS has no estimate of your queued jobs: the site has it turned off"
        )
    return min(starts)


def _start(values: Mapping[str, str]) -> float | None:
    """``Sun Nov 22 15:03:56 2026``, or seconds since 1970."""
    text = values.get(_ESTIMATE, "")
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        return time.mktime(time.strptime(text))
    except ValueError:
        return None
