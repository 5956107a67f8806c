"""``srun``: places tasks as SLURM does, and starts them with the environment that SLURM gives them."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from rankup.rehearse.slurm_env import Step, task_environment
from rankup.rehearse.srun_options import SrunOptions, inherited, parse
from rankup.rehearse.stand_ins.context import GROUP, HOST, Here
from rankup.rehearse.stand_ins.holding import steps, trains, wait_until_quiet
from rankup.rehearse.stand_ins.standard_input import given_input
from rankup.rehearse.step_plan import StepPlan, plan_step

_MOST_TASKS = 1024


def main(here: Here) -> int:
    if here.job.scheduler != "slurm" or "SLURM_JOB_ID" not in here.env:
        here.note("srun outside of a SLURM job would submit a new job, and wait in the queue", "new-job")
        here.fail("srun: error: Unable to allocate resources: not in a job")
    given = parse(here.args)
    if given.problem:
        here.note(given.problem, "bad-srun")
        here.fail(f'{given.problem}\nTry "srun --help" for more information', 1)
    if given.has("version") or given.has("help"):
        print("slurm {}.{:02}".format(*here.scenario.slurm_version))
        return 0
    if not given.command:
        here.fail("srun: fatal: No command given to execute.")
    if ":" in given.command:
        here.note(
            "srun starts a heterogeneous step (several commands with ' : '); only the first is rehearsed",
            "unknown",
        )
        given.command = given.command[: given.command.index(":")]
    plan, step = _place(here, given)
    for warning in plan.warnings:
        print(f"srun: Warning: {warning}", file=sys.stderr, flush=True)
        here.note(f"srun warns: {warning}", "srun-warning")
    for note in plan.notes:
        here.note(note, "unknown")
    if step is None:
        here.note(f"{' '.join(['srun', *here.args])}: {plan.error}", "step-refused")
        here.fail(f"srun: error: {plan.error}")
    group = here.launch(
        launcher="srun",
        hosts=list(step.hosts),
        tasks=len(step.tasks),
        step=step.number,
        waits=plan.waits,
        counts=list(step.counts),
        cpus=list(step.cpus),
        cpus_per_task=plan.cpus_per_task,
    )
    code = _run(here, given, plan, step, group)
    if here.background and trains(here, group):
        wait_until_quiet(here)
    with steps(here) as state:
        state["held"].pop(str(step.number), None)
    here.ended()
    return code


def _place(here: Here, given: SrunOptions) -> tuple[StepPlan, Step | None]:
    """The step's place, free of what other steps hold: it waits for them, as SLURM does."""
    told = False
    while True:
        with steps(here) as state:
            busy = [host for hosts in state["held"].values() for host in hosts]
            options = inherited(here.env, here.scenario.slurm_version)
            number = state["next"]
            plan = plan_step(here.job, given, options, number=number, busy=busy, launched_from=here.host)
            if plan.step is None or not plan.waits:
                if plan.step is not None:
                    state["next"] += 1
                    if not given.has("overlap") and "overlap" not in options:
                        state["held"][str(number)] = list(plan.step.hosts)
                plan.waits = told
                return plan, plan.step
        if not told:
            here.note(
                f"{' '.join(['srun', *here.args])}: waits for a step that holds its nodes", "step-waits"
            )
            told = True
        time.sleep(0.05)


def _run(here: Here, given: SrunOptions, plan: StepPlan, step: Step, group: str) -> int:
    if len(step.tasks) > _MOST_TASKS:
        here.fail(f"srun: error: the rehearsal starts at most {_MOST_TASKS} tasks")
    exported = _exported(here, given)
    if plan.sets_ntasks_per_node is not None:
        exported["SLURM_NTASKS_PER_NODE"] = str(plan.sets_ntasks_per_node)
    if plan.cpus_per_task is not None:
        exported["SLURM_CPUS_PER_TASK"] = str(plan.cpus_per_task)
    programs = _multi_prog(given, here.cwd) if given.has("multi-prog") else {}
    folder = (
        given.options.get("chdir")
        or inherited(here.env, here.scenario.slurm_version).get("chdir")
        or here.cwd
    )
    label = given.has("label")
    stdin = given_input(here)
    running = []
    for task in step.tasks:
        env = task_environment(here.scenario, exported, step, task)
        env |= {GROUP: group, HOST: task.host}
        if "HOSTNAME" not in env:
            env["HOSTNAME"] = task.host
        command = programs.get(task.rank, given.command)
        command = [word.replace("%t", str(task.rank)) for word in command] if programs else command
        out: IO[bytes] | None = tempfile.TemporaryFile() if label else None  # noqa: SIM115
        source: IO[bytes] | int = Path(stdin).open("rb") if stdin else os.open(os.devnull, os.O_RDONLY)  # noqa: SIM115
        process = here.start(command, host=task.host, env=env, cwd=folder, stdin=source, stdout=out)
        os.close(source) if isinstance(source, int) else source.close()
        running.append((task, process, out))
    worst = 0
    for task, process, out in running:
        code = process.wait()
        code = 128 - code if code < 0 else code
        if out is not None:
            _print_labelled(out, task.rank, len(step.tasks))
        if code:
            print(
                f"srun: error: {task.host}: task {task.rank}: Exited with exit code {code}",
                file=sys.stderr,
                flush=True,
            )
        worst = max(worst, code)
    return worst


def _exported(here: Here, given: SrunOptions) -> dict[str, str]:
    """The variables that srun hands on: all, or with --export those that it names, and SLURM's own."""
    variables = inherited(here.env, here.scenario.slurm_version)
    wanted = given.options.get("export", variables.get("export", "ALL"))
    own = {name: value for name, value in here.env.items() if name.startswith(("SLURM", "RANKUP_REHEARSE"))}
    if wanted in ("NONE", "NIL"):
        here.note(
            "srun hands on no variables (--export=NONE): not even PATH; "
            "export SLURM_EXPORT_ENV=ALL before srun hands on all of them",
            "no-environment",
        )
        return own
    env: dict[str, str] = {}
    names = wanted.split(",")
    env = dict(here.env) if "ALL" in names else own
    for name in names:
        key, equals, value = name.partition("=")
        if equals:
            env[key] = value
        elif key in here.env:
            env[key] = here.env[key]
    return env


def _multi_prog(given: SrunOptions, cwd: Path) -> Mapping[int, list[str]]:
    """Rank → command, of a file with lines like ``0-3 python worker.py %t``."""
    import shlex

    from rankup.core.hostlist import expand

    found: dict[int, list[str]] = {}
    for line in Path(cwd, given.command[0]).read_text().splitlines():
        ranks, _, command = line.strip().partition(" ")
        if ranks and not ranks.startswith("#") and ranks != "*":
            found |= {int(rank): shlex.split(command) for rank in expand(f"[{ranks}]")}
    return found


def _print_labelled(out: IO[bytes], rank: int, tasks: int) -> None:
    out.seek(0)
    width = len(str(tasks - 1))
    for line in out.read().splitlines():
        sys.stdout.buffer.write(f"{rank:>{width}}: ".encode() + line + b"\n")
    sys.stdout.flush()
    out.close()
