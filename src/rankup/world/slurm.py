"""SLURM: the job in which a process runs, and the step in which ``srun`` started it.

A batch shell has SLURM_NTASKS, SLURM_PROCID=0 and SLURM_NODEID=0 although no tasks were started there. So a
process has ranks only inside a real step. There only the step's own sizes (STEP_*) count, because a step may
be smaller than its job.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankup.core.hostlist import expand, expand_counts
from rankup.errors import RankupError
from rankup.world.world import SchedulerJob, Variables, World, whole_number

# SLURM gives steps that srun did not start the highest numbers of 32 bits: salloc's interactive step (4294967290),
# the batch script (…291), the external step of an ssh login (…292), a step without a number yet (…293).
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
_SHELLS = ("bash", "sh", "zsh", "tcsh", "csh", "fish")


def job(env: Mapping[str, str]) -> SchedulerJob | None:
    """The job that SLURM_JOB_ID names, or None."""
    read = Variables(env)
    name = read.first("SLURM_JOB_ID", "SLURM_JOBID")
    if name is None:
        return None
    sources, job_id = {"job_id": name}, env[name]
    if read.first("SLURM_ARRAY_JOB_ID") and read.first("SLURM_ARRAY_TASK_ID"):
        sources["job_id"] = "SLURM_ARRAY_JOB_ID, SLURM_ARRAY_TASK_ID"
        job_id = f"{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}"
    restart = read.number("restart", "SLURM_RESTART_COUNT", default=0)
    hosts: tuple[str, ...] = ()
    nodelist = read.first("SLURM_JOB_NODELIST", "SLURM_NODELIST")
    if nodelist:
        hosts, sources["hosts"] = tuple(expand(env[nodelist])), nodelist
    return SchedulerJob(job_id, restart, hosts, env.get("SLURMD_NODENAME"), {**read.sources, **sources})


def detect(env: Mapping[str, str]) -> World | None:
    if not in_step(env):
        return None
    read = Variables(env)
    around = job(env) or SchedulerJob()
    rank = read.number("rank", "SLURM_PROCID")
    world_size = read.number("world_size", "SLURM_STEP_NUM_TASKS")
    local_rank = read.number("local_rank", "SLURM_LOCALID")
    node_rank = read.number("node_rank", "SLURM_NODEID")
    num_nodes = read.number("num_nodes", "SLURM_STEP_NUM_NODES")
    read.check_below("node_rank", node_rank, "num_nodes", num_nodes)
    counts = expand_counts(env.get("SLURM_STEP_TASKS_PER_NODE", ""))
    if len(counts) != num_nodes:
        raise _disagrees(env, "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_NODES")
    read.sources["local_world_size"] = "SLURM_STEP_TASKS_PER_NODE, SLURM_NODEID"
    hosts = tuple(expand(env.get("SLURM_STEP_NODELIST", "")))
    if hosts:
        read.sources["hosts"] = "SLURM_STEP_NODELIST"
        if len(hosts) != num_nodes:
            raise _disagrees(env, "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES")
    return World(
        rank, local_rank, world_size, counts[node_rank], node_rank, num_nodes, hosts,
        "srun", around.id, around.restart, {**around.sources, **read.sources},
    )  # fmt: skip


def in_step(env: Mapping[str, str]) -> bool:
    """Whether srun started this process as one of a step's tasks."""
    name = Variables(env).first("SLURM_STEP_ID", "SLURM_STEPID")
    if name is None or env[name] in ("batch", "extern", "interactive"):
        return False
    step = whole_number(env, name)
    # `srun -n4 --pty bash` is an interactive shell: a command typed there runs once, not four times. A step
    # started from that shell inherits the other two variables, but its number is not 0.
    typed = step == 0 and env.get("SLURM_JOB_NAME") in _SHELLS and "SLURM_PTY_PORT" in env
    return step < _FIRST_SPECIAL_STEP and not typed


def _disagrees(env: Mapping[str, str], name: str, other: str) -> RankupError:
    return RankupError(
        "contradictory-environment",
        f"{name} is {env.get(name, '')!r}, but {other} is {env[other]!r}: not the same number of nodes",
        context=f"in step {env.get('SLURM_JOB_ID')}.{env.get('SLURM_STEP_ID')}",
        hint=f"do not set them by hand: unset {name} {other}, and let srun set them",
    )
