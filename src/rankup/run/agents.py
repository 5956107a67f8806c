"""A whole allocation: from its shell, one ``rankup run`` per node, in the form that is used by hand.

The agents are started, watched and ended by the same bash as those of a submitted job (``node_launchers``): here it is
written to ``agents.sh`` in the run directory, and only this one process is watched.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rankup.core import shell
from rankup.core.files import write_atomic
from rankup.core.rundir import RunDir
from rankup.core.tail import Tail, size_of
from rankup.node_launchers.agents import by_signal, node_launcher, part
from rankup.node_launchers.base import Agents
from rankup.resolve.resolved import Resolved
from rankup.run.allocation import Allocation
from rankup.run.attempts import Attempt, processes_as_options
from rankup.run.meeting import forget_port
from rankup.run.node import SAVING
from rankup.run.process_cleanup import MARK, kill_processes, new_process_mark

# Agents hear of a signal within a second or two, and end their own processes soon; then we end the agents.
GRACE = 10.0
# What agents.sh calls by names that its user's variables may have as well: an agent gets the user's back.
_NAMES = ("RUN", "HOSTS", "END", "STOP_BEFORE", "SLURM_EXPORT_ENV")
_PREFIXED = re.compile(r"\[rank (\d+)\] ?(.*)", re.DOTALL)


def choose_fanout(allocation: Allocation) -> tuple[str, str]:
    """What ``--fanout`` and the site's kind of MPI would be: the scheduler's own, else whichever mpiexec there is."""
    if allocation.scheduler != "pbs" or shutil.which("pbsdsh"):
        return "auto", ""
    return "mpiexec", "openmpi" if "Open MPI" in shell.run(["mpiexec", "--version"]).out else "pals"


def agent_command(job: Resolved, allocation: Allocation, run: RunDir) -> str:
    """``rankup run`` as each node executes it, as bash; what nobody set is decided there, by its GPUs and cores."""
    spec, nodes = job.spec, len(allocation.hosts)
    options = [f"--rdzv-endpoint={allocation.endpoint()}", f"--rdzv-timeout={spec.rdzv_timeout:g}"]
    options += [f"--nproc-per-node={spec.nproc_per_node}"] if "nproc_per_node" in job.asked else []
    options += processes_as_options(spec, threads=spec.threads or spec.cpus_per_task)
    options += [f"--run-dir={run.path}", "--", *spec.command]
    start = shell.quote([sys.executable, "-m", "rankup", "run", f"--nnodes={nodes}"])
    node_rank = '"$NODE_RANK"' if nodes > 1 else "0"
    return f"{start} --node-rank {node_rank} {shell.quote(options)}"


def agents_script(job: Resolved, allocation: Allocation, run: RunDir, env: Mapping[str, str]) -> str:
    """Bash that starts the agents and ends with 0 if all of them did; TERM tells them to end."""
    agent = [f"exec {agent_command(job, allocation, run)}"]
    return launch_script(agent, allocation, run.path, env, given=job.spec.env)


def launch_script(
    agent: Sequence[str],
    allocation: Allocation,
    folder: Path,
    env: Mapping[str, str],
    *,
    given: Collection[str] = (),
    by_step: bool = True,
) -> str:
    """Bash that starts ``agent``, lines of bash, once on each node of ``allocation``; its files are in ``folder``.

    ``env`` is the caller's environment, ``given`` the names that all nodes get from it. ``by_step``: TERM reaches the
    agents through the scheduler, which requires that all nodes see ``folder``; otherwise it ends their launcher.
    """
    nodes = len(allocation.hosts)
    fanout, mpi = choose_fanout(allocation)
    start = node_launcher(fanout, allocation.scheduler, nodes=nodes, mpi=mpi)
    restored = [
        f"export {name}={shell.quote([env[name]])}" if name in env else f"unset {name}" for name in _NAMES
    ]
    agents = start(
        Agents(
            agent=(*restored, *agent),
            nodes=nodes,
            cpus=allocation.cpus,
            hosts=allocation.hosts if allocation.of else (),
            given=given,
            whole_job=not by_step,
        )
    )
    lines = [
        "#!/bin/bash",
        "# Written by rankup: starts it once on each node of this allocation.",
        "# shellcheck disable=SC2016,SC2034 # single quotes are for other shells; not every part uses every value",
        f"export RUN={shell.quote([str(folder)])}",
        f"HOSTS=({shell.quote(allocation.hosts)})",
        "END=0 STOP_BEFORE=0 # the time limit is the user's",
        "export SLURM_EXPORT_ENV=ALL # after `sbatch --export=NONE` srun would pass on nothing",
        *agents.own,
        "main() {",
        "  trap end_ranks TERM",
        '  (while kill -0 "$PPID" 2>/dev/null; do sleep 1; done && kill -TERM "$$") & # if rankup was killed',
        *(f"  {line}" for line in agents.start),
        '  while kill -0 "$workers" 2>/dev/null; do wait "$workers"; done # a trap interrupts it',
        '  wait "$workers"',
        "}",
        *(agents.end if by_step else by_signal()),
        *([*part("marked.sh"), *part("is_lost.sh")] if agents.fixed else []),
        *agents.fixed,
        "main",
    ]
    return "\n".join(lines) + "\n"


def environment(job: Resolved, allocation: Allocation) -> dict[str, str]:
    """The environment of the agents, and of what starts them."""
    cpus = {"SRUN_CPUS_PER_TASK": str(allocation.cpus)} if allocation.cpus else {}
    return {**os.environ, **job.spec.env, MARK: new_process_mark(os.environ), **cpus}


def run_agents(attempt: Attempt, allocation: Allocation) -> int:
    """Start the agents, show what they print, and return 0 if all of them ended well, else a code that is not 0."""
    run, env = attempt.run, attempt.env
    forget_port(run)
    script = run.path / "agents.sh"
    write_atomic(script, os.fsencode(agents_script(attempt.job, allocation, run, env)), mode=0o700)
    logs = {stream: run.logs / f"agents.{stream}" for stream in ("out", "err")}
    tails = {stream: Tail(path, size_of(path)) for stream, path in logs.items()}
    with logs["out"].open("ab") as out, logs["err"].open("ab") as err:
        process = shell.start(
            ["bash", str(script)],
            env=env,
            cwd=attempt.spec.folder,
            stdin=shell.DEVNULL,
            stdout=out,
            stderr=err,
            new_session=True,
        )
    try:
        _watch(attempt, process, tails)
    finally:
        kill_processes(env[MARK])
        code = process.wait()
        for path in run.path.glob("agent-*.sh"):  # they hold the environment
            path.unlink(missing_ok=True)
    return code


def _watch(attempt: Attempt, process: shell.Process[bytes], tails: Mapping[str, Tail]) -> None:
    interrupts = attempt.interrupts
    deadline: float | None = None
    while process.poll() is None:
        _show(attempt, {stream: tail.read() for stream, tail in tails.items()})
        if deadline is None and interrupts.first is not None:
            saves = interrupts.first == signal.SIGTERM and attempt.run.listening.exists()
            deadline = time.monotonic() + GRACE + (SAVING if saves else 0.0)
            process.terminate()
        if deadline is not None and (interrupts.count > 1 or time.monotonic() > deadline):
            process.kill()
        time.sleep(0.1)
    _show(attempt, {stream: tail.rest() for stream, tail in tails.items()})


def _show(attempt: Attempt, said: Mapping[str, Sequence[str]]) -> None:
    for stream, lines in said.items():
        for line in lines:
            match = _PREFIXED.fullmatch(line)
            attempt.view.line(int(match[1]) if match else None, stream, match[2] if match else line)
    attempt.view.tick(attempt.run)
