"""A whole allocation: from its shell, one ``rankup run`` per node, in the form that is used by hand."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from rankup.core import shell
from rankup.core.files import write_atomic
from rankup.core.rundir import RunDir
from rankup.core.tail import Tail, size_of
from rankup.node_launchers.base import NODE_RANK, OWN, AgentLaunch, fanout_named
from rankup.run.allocation import Allocation
from rankup.run.endpoint import forget
from rankup.run.interrupts import Interrupts
from rankup.run.job import LocalJob, View
from rankup.run.node import SAVING
from rankup.run.process_cleanup import MARK, kill_processes, new_process_mark

# An agent ends its own processes within this after a signal; then we end the agents.
GRACE = 8.0
NFS_LAG = 60.0
# Bash runs a trap only between commands: so the agent is in the background, and the wait is taken up again.
_AGENT = """\
{exports}cd {folder} || exit 1
{command} &
agent=$!
trap 'kill -TERM $agent' TERM INT HUP
while wait $agent; code=$?; kill -0 $agent 2>/dev/null; do :; done
echo $code >{code}
exit $code
"""
_PREFIXED = re.compile(r"\[rank (\d+)\] ?(.*)", re.DOTALL)
_NOT_CARRIED = re.compile("|".join((*OWN, "_", "BASH_FUNC_.*")))


def choose_fanout(allocation: Allocation) -> str:
    """srun on SLURM; on PBS pbsdsh, which needs no remote shell, else whichever mpiexec there is."""
    if allocation.scheduler == "slurm":
        return "srun"
    if shutil.which("pbsdsh"):
        return "pbsdsh"
    return "mpiexec" if "Open MPI" in shell.run(["mpiexec", "--version"]).out else "pals"


def agent_command(job: LocalJob, allocation: Allocation, run: RunDir) -> tuple[str, ...]:
    """``rankup run`` as each node executes it."""
    nproc = [] if job.nproc is None else [f"--nproc-per-node={job.nproc}"]
    threads = [] if job.threads is None else [f"--threads={job.threads}"]
    return (
        *(job.python, "-m", "rankup", "run"),
        *(f"--nnodes={len(allocation.hosts)}", "--node-rank", NODE_RANK),
        f"--rdzv-endpoint={allocation.endpoint()}",
        f"--rdzv-timeout={job.rdzv_timeout:g}",
        f"--max-restarts={job.max_restarts}",
        *nproc,
        *threads,
        f"--run-dir={run.path}",
        "--",
        *job.command,
    )


def run_agents(job: LocalJob, allocation: Allocation, run: RunDir, interrupts: Interrupts, view: View) -> int:
    """Start the agents, show what they print, and return 0 if all of them ended well, else a code that is not 0."""
    forget(run.path)
    mark = new_process_mark(os.environ)
    env = {**os.environ, **job.env, MARK: mark}
    plan = AgentLaunch(
        hosts=allocation.hosts,
        agent=agent_command(job, allocation, run),
        folder=run.path / "agents",
        lines=allocation.lines,
        cpus=allocation.cpus,
    )
    if plan.cpus:
        env["SRUN_CPUS_PER_TASK"] = str(plan.cpus)
    name = choose_fanout(allocation)
    if name != "srun":
        write_scripts(plan, env, os.getcwd(), given=job.env)  # noqa: PTH109
    logs = {stream: run.logs / f"{name}.{stream}" for stream in ("out", "err")}
    tails = {stream: Tail(path, size_of(path)) for stream, path in logs.items()}
    with logs["out"].open("ab") as out, logs["err"].open("ab") as err:
        processes = [
            shell.start(
                tokens,
                env=env,
                stdin=shell.DEVNULL,
                stdout=out,
                stderr=err,
                new_session=True,
                die_with_parent=True,
            )
            for tokens in fanout_named(name)(plan)
        ]
    try:
        _watch(processes, tails, run, interrupts, view, plan, outlived=name == "pbsdsh")
    finally:
        kill_processes(mark)
        codes = [process.wait() for process in processes]
    codes += _last_codes(plan) if name == "pbsdsh" else []
    return next((code for code in codes if code != 0), 0)


def write_scripts(
    plan: AgentLaunch, env: Mapping[str, str], folder: str, given: Collection[str] = ()
) -> None:
    """``agent-I.sh`` for each node, which brings our environment and folder along, and the list of hosts.

    What is a node's own stays here, but for what is ``given`` for all.
    """
    plan.folder.mkdir(mode=0o700)
    carried = {
        name: value
        for name, value in env.items()
        if name in given or (name.isidentifier() and not _NOT_CARRIED.fullmatch(name))
    }
    exports = "".join(f"export {key}={shell.quote([value])}\n" for key, value in carried.items())
    for node in range(len(plan.hosts)):
        command = shell.quote([str(node) if token == NODE_RANK else token for token in plan.agent])
        text = _AGENT.format(
            exports=exports,
            folder=shell.quote([folder]),
            command=command,
            code=shell.quote([str(_code(plan, node))]),
        )
        write_atomic(plan.script_of(node), os.fsencode(text), mode=0o700)
    write_atomic(plan.hostfile, "".join(f"{host}\n" for host in plan.hosts))


def _code(plan: AgentLaunch, node: int) -> Path:
    return plan.folder / f"agent-{node}.code"


def _codes(plan: AgentLaunch) -> list[int]:
    """The codes of the agents that have ended, where agents leave them in files."""
    files = [_code(plan, node) for node in range(len(plan.hosts))]
    return [int(text) for text in (file.read_text() for file in files if file.exists()) if text.strip()]


def _last_codes(plan: AgentLaunch) -> list[int]:
    """All codes. pbsdsh ends with 0 whatever its tasks did; an agent without a code was killed, or NFS is late."""
    deadline = time.monotonic() + NFS_LAG
    while len(codes := _codes(plan)) < len(plan.hosts) and not any(codes) and time.monotonic() < deadline:
        os.listdir(plan.folder)  # noqa: PTH208  # has the client look again
        time.sleep(0.5)
    return codes + [1] * (len(plan.hosts) - len(codes))


def _watch(
    processes: list[shell.Process[bytes]],
    tails: Mapping[str, Tail],
    run: RunDir,
    interrupts: Interrupts,
    view: View,
    plan: AgentLaunch,
    *,
    outlived: bool,
) -> None:
    """Until all have ended. ``outlived``: told to end, they are gone at once, while their agents go on saving."""
    deadline: float | None = None

    def at_work() -> bool:
        if any(process.poll() is None for process in processes):
            return True
        waited_for = outlived and deadline is not None and time.monotonic() < deadline
        return waited_for and len(_codes(plan)) < len(plan.hosts)

    while at_work():
        _show(tails, view, all_of_it=False)
        view.tick(run)
        failed = any(process.poll() for process in processes) or any(_codes(plan))
        if deadline is None and (interrupts.first is not None or failed):
            saves = interrupts.first == signal.SIGTERM and run.listening.exists()
            deadline = time.monotonic() + GRACE + (SAVING if saves else 0.0)
            for process in processes:
                # Never SIGINT: srun takes the first one for a question.
                process.terminate()
        if deadline is not None and (interrupts.count > 1 or time.monotonic() > deadline):
            for process in processes:
                process.kill()
        time.sleep(0.1)
    _show(tails, view, all_of_it=True)
    view.tick(run)


def _show(tails: Mapping[str, Tail], view: View, *, all_of_it: bool) -> None:
    for stream, tail in tails.items():
        for line in tail.rest() if all_of_it else tail.read():
            match = _PREFIXED.fullmatch(line)
            view.line(int(match[1]) if match else None, stream, match[2] if match else line)
