"""What SLURM puts into the environment of a batch shell and of a step's tasks, as a real SLURM 22.05 does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankup.core.hostlist import compress
from rankup.rehearse.allocation import counts_text
from rankup.rehearse.scenario import Scenario

_DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK")


@dataclass(frozen=True)
class TaskPlace:
    """One task of a step: its ranks, its host, and the GPUs that it is bound to (None: the step's, unbound)."""

    rank: int
    local_rank: int
    node: int
    host: str
    gpus: tuple[int, ...] | None = ()  # None: no variable is set at all


@dataclass(frozen=True)
class Step:
    """A step: where its tasks run, in the order of their ranks."""

    number: int
    hosts: tuple[str, ...]
    tasks: tuple[TaskPlace, ...]
    cpus: tuple[int, ...]  # of each of its nodes
    gpus: tuple[int, ...]
    distribution: str = "block"
    gpus_bound: str = ""
    launched_from: str = ""

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(sum(task.node == node for task in self.tasks) for node in range(len(self.hosts)))


def batch_environment(scenario: Scenario) -> dict[str, str]:
    """The variables of the batch shell, which runs on the first node."""
    job = scenario.allocation
    host = job.hosts[0]
    env = {
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": host,
        "TMPDIR": "/tmp",
        **_job_environment(scenario, host),
        "SLURM_CPUS_ON_NODE": str(job.cpus[0]),
        "SLURM_NNODES": str(job.num_nodes),
        "SLURM_TASKS_PER_NODE": counts_text(job.tasks_per_node()),
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": "0",
        "SLURM_SUBMIT_DIR": str(scenario.folder),
        "SLURM_SUBMIT_HOST": "login",
    }
    # A batch shell knows its number of tasks only if the job has asked for tasks.
    if job.ntasks is not None or job.ntasks_per_node is not None:
        env["SLURM_NTASKS"] = env["SLURM_NPROCS"] = str(sum(job.tasks_per_node()))
    asked = {
        "SLURM_NTASKS_PER_NODE": job.ntasks_per_node,
        "SLURM_CPUS_PER_TASK": job.cpus_per_task,
        "SLURM_GPUS_PER_TASK": job.gpus_per_task,
        "SLURM_GPUS_PER_NODE": job.gpus_per_node,
        "SLURM_GPUS": job.total_gpus,
        "SLURM_NTASKS_PER_GPU": job.ntasks_per_gpu,
    }
    env |= {name: str(value) for name, value in asked.items() if value is not None}
    env |= job.handed_on
    if job.export_none:
        env["SLURM_EXPORT_ENV"] = "NONE"
    if scenario.restarts:
        env["SLURM_RESTART_COUNT"] = str(scenario.restarts)
    if job.array_task is not None:
        env |= {"SLURM_ARRAY_JOB_ID": job.job_id, "SLURM_ARRAY_TASK_ID": job.array_task}
        names = ("COUNT", "MIN", "MAX", "STEP")
        env |= {
            f"SLURM_ARRAY_TASK_{name}": str(number) for name, number in zip(names, job.array, strict=True)
        }
    if job.gpus[0]:
        env |= _devices(range(job.gpus[0]))
        env |= {"SLURM_GPUS_ON_NODE": str(job.gpus[0]), "SLURM_JOB_GPUS": _numbers(range(job.gpus[0]))}
    return env


def _job_environment(scenario: Scenario, host: str) -> dict[str, str]:
    """What is the same in the batch shell and in all steps."""
    job = scenario.allocation
    nodes = compress(job.hosts)
    return {
        "SLURMD_NODENAME": host,
        "SLURM_CLUSTER_NAME": "rehearsal",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_JOBID": job.job_id,
        "SLURM_JOB_ID": job.job_id,
        "SLURM_JOB_NAME": job.job_name,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": str(job.num_nodes),
        "SLURM_JOB_CPUS_PER_NODE": counts_text(job.cpus),
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_USER": scenario.user,
        "SLURM_JOB_START_TIME": str(int(scenario.started)),
        "SLURM_JOB_END_TIME": str(int(scenario.started) + scenario.time),
        "SLURM_NODE_ALIASES": "(null)",
        "SLURM_TOPOLOGY_ADDR": host,
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
    }


def task_environment(
    scenario: Scenario, inherited: Mapping[str, str], step: Step, task: TaskPlace
) -> dict[str, str]:
    """The whole environment of one task; ``inherited`` is what srun hands on."""
    host_address = scenario.allocation.address(step.launched_from)
    env = {**inherited, **_job_environment(scenario, task.host)}
    on_node = [other.rank for other in step.tasks if other.node == task.node]
    env |= {
        "SLURM_STEP_ID": str(step.number),
        "SLURM_STEPID": str(step.number),
        "SLURM_STEP_NODELIST": compress(step.hosts),
        "SLURM_STEP_NUM_NODES": str(len(step.hosts)),
        "SLURM_STEP_NUM_TASKS": str(len(step.tasks)),
        "SLURM_STEP_TASKS_PER_NODE": counts_text(step.counts),
        "SLURM_STEP_LAUNCHER_PORT": "35701",
        "SLURM_SRUN_COMM_HOST": host_address,
        "SLURM_SRUN_COMM_PORT": "35701",
        "SLURM_LAUNCH_NODE_IPADDR": host_address,
        "SLURM_NNODES": str(len(step.hosts)),
        "SLURM_NTASKS": str(len(step.tasks)),
        "SLURM_NPROCS": str(len(step.tasks)),
        "SLURM_TASKS_PER_NODE": counts_text(step.counts),
        "SLURM_NODEID": str(task.node),
        "SLURM_PROCID": str(task.rank),
        "SLURM_LOCALID": str(task.local_rank),
        "SLURM_GTIDS": _numbers(on_node),
        "SLURM_CPUS_ON_NODE": str(step.cpus[task.node]),
        "SLURM_DISTRIBUTION": step.distribution,
        "SLURM_UMASK": "0022",
        "SRUN_DEBUG": "3",
    }
    if step.gpus_bound:
        env["SLURMD_TRES_BIND"] = f"gpu:{step.gpus_bound}"
    for name in (*_DEVICES, "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE"):
        env.pop(name, None)
    if step.gpus[task.node]:
        env["SLURM_GPUS_ON_NODE"] = str(step.gpus[task.node])
        if task.gpus is not None:
            env |= {**_devices(task.gpus), "SLURM_STEP_GPUS": _numbers(task.gpus)}
    return env


def _devices(numbers: Sequence[int]) -> dict[str, str]:
    return dict.fromkeys(_DEVICES, _numbers(numbers))


def _numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
