"""What PBS puts into the environment of a job's shell and of what pbsdsh and pbs_tmrsh start: as OpenPBS 23 does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rankup.rehearse.scenario import Scenario

_TASK_PATH = "/bin:/usr/bin"


def job_id(scenario: Scenario) -> str:
    job = scenario.allocation
    number = f"{job.job_id}[{job.array_task}]" if job.array_task is not None else job.job_id
    return f"{number}.head"


def local_disk(scenario: Scenario) -> str:
    """The folder that PBS makes for the job on each node's own disk."""
    return f"/var/tmp/pbs.{job_id(scenario)}"


def node_file(scenario: Scenario) -> Path:
    if scenario.confined:
        return Path("/var/spool/pbs/aux", job_id(scenario))
    return scenario.scratch / "nodefile"


def node_file_text(scenario: Scenario) -> str:
    """A host once for each of its MPI processes."""
    job = scenario.allocation
    return "".join(f"{host}\n" * lines for host, lines in zip(job.hosts, job.mpiprocs, strict=True))


def submitted(scenario: Scenario, env: Mapping[str, str]) -> dict[str, str]:
    """The job's Variable_List: what every process of it gets."""
    return {
        "PBS_O_HOME": scenario.home,
        "PBS_O_HOST": "login",
        "PBS_O_LANG": env.get("LANG", "C.UTF-8"),
        "PBS_O_LOGNAME": scenario.user,
        "PBS_O_PATH": env.get("PBS_O_PATH", env.get("PATH", _TASK_PATH)),
        "PBS_O_QUEUE": scenario.allocation.partition,
        "PBS_O_SHELL": "/bin/bash",
        "PBS_O_SYSTEM": "Linux",
        "PBS_O_WORKDIR": str(scenario.folder),
        **scenario.variables,
    }


def of_nci(scenario: Scenario) -> dict[str, str]:
    """The sizes that NCI's PBS adds, which alone knows ``-l wd``."""
    job = scenario.allocation
    return {
        "PBS_NCPUS": str(sum(job.cpus)),
        "PBS_NGPUS": str(sum(job.gpus)),
        "PBS_NNODES": str(job.num_nodes),
    }


def batch_environment(scenario: Scenario, env: Mapping[str, str]) -> dict[str, str]:
    """The variables of the job's shell, a login shell on the first host."""
    job = scenario.allocation
    own = {
        **_common(scenario, env, 0, 1),
        "PBS_NODEFILE": str(node_file(scenario)),
        "PBS_JOBDIR": scenario.home,
        "HOSTNAME": job.hosts[0],
    }
    if job.array_task is not None:
        own |= {"PBS_ARRAY_INDEX": job.array_task, "PBS_ARRAY_ID": f"{job.job_id}[].head"}
    if job.scheduler == "torque":
        own |= {"PBS_NP": str(sum(job.mpiprocs)), "PBS_O_INITDIR": str(scenario.folder), "PBS_VNODENUM": "0"}
        if job.array_task is not None:
            own["PBS_ARRAYID"] = job.array_task
    return own


def task_environment(scenario: Scenario, env: Mapping[str, str], host: str, number: int) -> dict[str, str]:
    """What pbsdsh and pbs_tmrsh start gets: the job's Variable_List, and nothing that the script exports."""
    return {
        **_common(scenario, env, scenario.allocation.hosts.index(host), number),
        "PATH": f"{scenario.bin}:{_TASK_PATH}",
        "HOME": scenario.home,
        "USER": scenario.user,
        "LOGNAME": scenario.user,
    }


def _common(scenario: Scenario, env: Mapping[str, str], node: int, number: int) -> dict[str, str]:
    job = scenario.allocation
    cpus = job.cpus[node]
    torque = {
        "PBS_NUM_NODES": str(job.num_nodes),
        "PBS_NUM_PPN": str(job.mpiprocs[0]),
        "PBS_VNODENUM": str(number),
    }
    return {
        **submitted(scenario, env),
        **(torque if job.scheduler == "torque" else {}),
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_JOBNAME": job.job_name,
        "PBS_QUEUE": job.partition,
        "PBS_TASKNUM": str(number),
        "ENVIRONMENT": "BATCH",
        "NCPUS": str(cpus),
        "OMP_NUM_THREADS": str(job.ompthreads or cpus),
        "TMPDIR": local_disk(scenario) if scenario.confined else "/tmp",
        "PBS_JOBID": job_id(scenario),
        "PBS_NODENUM": str(node),
        "PBS_JOBCOOKIE": "0" * 32,
        "PBS_MOMPORT": "15003",
    }
