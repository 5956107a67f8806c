"""``srun``: places tasks as SLURM does, and starts them with the environment that SLURM gives them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from rankup.rehearse.slurm_env import Step, task_environment
from rankup.rehearse.srun_options import SrunOptions, inherited, parse
from rankup.rehearse.stand_ins.context import Here
from rankup.rehearse.stand_ins.holding import steps
from rankup.rehearse.stand_ins.tasks import Task, given_input, run_all
from rankup.rehearse.step_plan import StepPlan, plan_step


def main(here: Here) -> int:
    if here.job.scheduler != "slurm" or "SLURM_JOB_ID" not in here.env:
        here.note("srun outside of a SLURM job would submit a new job, and wait in the queue", "new-job")
        here.fail("srun: error: Unable to allocate resources: not in a job")
    given = parse(here.args)
    if given.problem:
        here.note(given.problem, "bad-srun")
        here.fail(f'{given.problem}\nTry "srun --help" for more information', 1)
    if given.unknown:
        here.note(f"srun: the rehearsal does not know {', '.join(given.unknown)}; left out", "unknown")
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
        here.complain(f"srun: Warning: {warning}")
        here.note(f"srun warns: {warning}", "srun-warning")
    for note in plan.notes:
        here.note(note, "unknown")
    if step is None:
        here.note(f"{' '.join(['srun', *here.args])}: {plan.error}", "step-refused")
        here.fail(f"srun: error: {plan.error}")
    group = here.launch(
        launcher="srun", hosts=list(step.hosts), counts=list(step.counts), cpus=list(step.cpus),
        cpus_per_task=plan.cpus_per_task,
    )  # fmt: skip
    code = _run(here, given, plan, step, group)
    with steps(here) as state:
        state["held"].pop(str(step.number), None)
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
    exported = _exported(here, given)
    if plan.sets_ntasks_per_node is not None:
        exported["SLURM_NTASKS_PER_NODE"] = str(plan.sets_ntasks_per_node)
    if plan.cpus_per_task is not None:
        exported["SLURM_CPUS_PER_TASK"] = str(plan.cpus_per_task)
    programs = _multi_prog(given, here.cwd, len(step.tasks)) if given.has("multi-prog") else {}
    missing = [place.rank for place in step.tasks if programs and place.rank not in programs]
    if missing:
        here.complain(f"srun: error: No task_id {missing[0]} in configuration file")
        return 1
    folder = (
        given.options.get("chdir")
        or inherited(here.env, here.scenario.slurm_version).get("chdir")
        or here.cwd
    )
    label = given.has("label")
    tasks = []
    width = len(str(len(step.tasks) - 1))
    for place in step.tasks:
        env = task_environment(here.scenario, exported, step, place)
        env.setdefault("HOSTNAME", place.host)
        command = programs.get(place.rank, given.command)
        tasks.append(Task(place.host, command, env, folder, f"{place.rank:>{width}}: " if label else ""))

    def ends(number: int, code: int) -> None:
        if code:
            place = step.tasks[number]
            here.complain(f"srun: error: {place.host}: task {place.rank}: Exited with exit code {code}")

    return run_all(here, tasks, group, given_input(here), ends, forwards=True)


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


def _multi_prog(given: SrunOptions, cwd: Path, tasks: int) -> Mapping[int, list[str]]:
    """Rank → command, of a file with lines like ``0-3 python worker.py %t``; ``*`` is all that no other line names.

    ``%t`` is the rank, ``%o`` its place among the ranks of the line. The first line that names a rank counts.
    """
    import shlex

    from rankup.core.hostlist import expand

    found: dict[int, list[str]] = {}
    text = Path(cwd, given.command[0]).read_text().replace("\\\n", " ")
    for line in text.splitlines():
        ranks, *command = shlex.split(line, comments=True) or [""]
        if not ranks:
            continue
        named = [rank for rank in range(tasks) if rank not in found]
        if ranks != "*":
            named = [int(rank) for rank in expand(f"[{ranks}]")]
        for offset, rank in enumerate(named):
            words = [word.replace("%t", str(rank)).replace("%o", str(offset)) for word in command]
            found.setdefault(rank, words)
    return found
