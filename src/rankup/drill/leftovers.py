"""Processes of a job that outlive it: a small job on each of its nodes looks for them, when all is over."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from rankup.core.files import write_atomic
from rankup.core.shell import quote
from rankup.drill.queue import Queue

_WAIT_S = 600.0
# Each process of an attempt has the path of its trace in its environment; on other nodes of PBS that of all attempts.
_LOOK = """\
#!/bin/bash
{directives}
for folder in /proc/[0-9]*; do
  found=$(tr '\\0' '\\n' <"$folder/environ" 2>/dev/null | grep -m 1 -E '^RANKUP_(TRACE|ATTEMPTS)='{home}/) || continue
  printf '%s\\t%s\\t%s\\n' "$found" "${{folder#/proc/}}" "$(tr '\\0' ' ' <"$folder/cmdline" | cut -c 1-80)"
done >{answer}.part
mv {answer}.part {answer}
"""


def left_processes(
    queue: Queue, home: Path, nodes: Collection[str], directives: Collection[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """(failure → processes that are still there, nodes that could not be looked at). ``directives``: whose account."""
    folder = home / "processes"
    folder.mkdir(mode=0o700)
    jobs = []
    for node in sorted(nodes):
        script, answer = folder / f"{node}.sh", folder / node
        text = _LOOK.format(
            directives="\n".join(directives), home=quote([str(home)]), answer=quote([str(answer)])
        )
        write_atomic(script, text, mode=0o700)
        jobs.append(queue.submit(folder, script, (), queue.on_node(node)))
    ends = time.monotonic() + _WAIT_S
    while queue.jobs(folder, jobs) and time.monotonic() < ends:
        time.sleep(1.0)
    for job in queue.jobs(folder, jobs):
        queue.cancel(job.id)
    found: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        answer = folder / node
        for line in answer.read_text(errors="replace").splitlines() if answer.exists() else []:
            trace, pid, command = line.split("\t", 2)
            failure = Path(trace.partition("=")[2]).relative_to(home).parts[0]
            found[failure].append(f"process {pid} on {node}: {command.strip()}")
    return found, [node for node in sorted(nodes) if not (folder / node).exists()]
