"""`rankup verify` without the launcher: ranks forked from a server that has torch, so that a whole proof costs seconds.

``execute`` takes the place of ``run.execute.execute``. What it leaves in the run directory is what verify reads of it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path

from ranks import context, free_port
from rankup.core.rundir import RUN_DIR_VARIABLE, RunDir
from rankup.errors import RankupError
from rankup.resolve.here import resolve_here
from rankup.resolve.resolved import Resolved
from rankup.run.execute import Result, View
from rankup.run.failure import Exit, Logs, first_failure, reason
from rankup.verify.attempts import Attempts
from rankup.verify.proof import Proof, verify
from rankup.verify.scenario import VerifyPlan

TIMEOUT_S = 240
STOPPED = 75


def _rank(env: dict[str, str], script: str, arguments: tuple[str, ...], folder: str, log: str) -> None:
    """A process that is as a launcher would start it."""
    os.setsid()
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{log}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.environ.update(env)
    os.chdir(folder)
    import torch

    torch.set_num_threads(1)
    sys.argv = [script, *arguments]
    sys.path.insert(0, folder)
    from rankup.runtime.tracing.script_hooks import record

    record()  # elsewhere ``startup`` does this, when a script imports torch
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    if code == 0:
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def execute(job: Resolved, view: View) -> Result:
    """``job`` on this machine, watched until every rank has ended."""
    began = time.monotonic()
    spec = job.spec
    run = RunDir.create(spec.runs_root, spec.name)
    count = spec.nproc_per_node
    env = {
        **spec.env,
        RUN_DIR_VARIABLE: str(run.path),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
    }
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    script, *arguments = spec.command
    processes = []
    for rank in range(count):
        own = {**env, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        folder = str(Path(script).parent)
        process = context.Process(
            target=_rank, args=(own, script, tuple(arguments), folder, str(run.logs / f"rank-{rank}"))
        )
        process.start()
        processes.append(process)
    events = [json.dumps({"event": "start", "rank": rank, "pid": p.pid}) for rank, p in enumerate(processes)]
    (run.logs / "events.jsonl").write_text("\n".join(events) + "\n")
    exits: dict[int, Exit] = {}
    late = False
    while any(process.is_alive() for process in processes):
        view.tick(run)
        for rank, process in enumerate(processes):
            if process.exitcode is not None and rank not in exits:
                exits[rank] = Exit(rank, process.exitcode, time.time())
        late = late or time.monotonic() > began + TIMEOUT_S
        if late or any(end.code for end in exits.values()):
            for process in processes:
                if process.is_alive():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.02)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.join()
        process.close()
    error, code = None, 0
    if any(codes):
        code = 1
        exits |= {r: Exit(r, c, time.time()) for r, c in enumerate(codes) if r not in exits and c is not None}
        said = f"had not ended after {TIMEOUT_S} s" if late else _of_the_first(exits, Logs(run.logs))
        error = RankupError("worker-failed", said, context=str(run.logs), exit_code=1)
    elif run.outcome() == "requeue":
        code = STOPPED
    return Result(code, run, None, None, time.monotonic() - began, error)


def _of_the_first(exits: dict[int, Exit], logs: Logs) -> str:
    failure = first_failure(exits.values(), logs)
    assert failure is not None
    return f"rank {failure.rank} failed first: {reason(failure, logs)}"


class Quiet:
    def follows(self, interruptions: int, seconds: float) -> None:
        pass

    def tick(self) -> None:
        pass

    def begins(self, what: str, processes: int) -> None:
        pass

    def ended(self, how: str) -> None:
        pass


def prove(script: Path, plan: VerifyPlan, words: tuple[str, ...] = ()) -> Proof:
    """What verify says of ``script``, started with ``words``; its traces are beside it."""
    flags = {"name": script.stem, "runs_root": script.parent / "runs"}
    job = resolve_here(flags, command=(str(script), *words))
    folder = RunDir.create(script.parent / "runs", f"verify-{script.stem}").path
    attempts = Attempts(job, folder, Quiet(), env=plan.env, execute=execute)
    return verify(attempts, plan, python=sys.executable)
