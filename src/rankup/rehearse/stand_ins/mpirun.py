"""``mpirun`` and ``mpiexec``: places ranks on the job's hosts, with the variables that the real one sets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rankup.core.hostlist import expand_counts
from rankup.launch_grammar.dialects import FAMILIES, MPI, families_of
from rankup.rehearse import pbs_env
from rankup.rehearse.mpi_options import MpiOptions, parse, place
from rankup.rehearse.slurm_env import task_environment
from rankup.rehearse.srun_options import SrunOptions, inherited
from rankup.rehearse.stand_ins.context import Here
from rankup.rehearse.stand_ins.tasks import Task, given_input, run_all
from rankup.rehearse.step_plan import plan_step


def main(here: Here) -> int:
    own = MPI[here.name]
    kind = own[0] if len(own) == 1 else here.scenario.mpi or _family(here)
    if {"--version", "-V"} & {*here.args[:1]}:
        print(
            {
                "openmpi": "mpirun (Open MPI) 4.1.6",
                "hydra": "HYDRA Version 4.1",
                "pals": "mpiexec (PALS) 1.3",
            }[kind]
        )
        return 0
    options = parse(kind, here.args, lambda path: _read(here, path))
    for note in options.notes:
        here.note(f"{here.name}: {note}", "unknown")
    if options.problem:
        return _refused(here, options.problem)
    if not options.command:
        return _refused(here, "no program is given")
    slots = _slots(here, options, kind)
    unknown = [host for host in slots if host not in here.job.hosts]
    if unknown:
        return _refused(here, f"{', '.join(unknown)} are not hosts of this job")
    placed, problem = place(options, slots, kind)
    if problem:
        return _refused(here, problem)
    hosts = [host for host in here.job.hosts if any(host == one for one, _ in placed)]
    counts = [sum(host == one for one, _ in placed) for host in hosts]
    cpus = [here.job.cpus[here.job.hosts.index(host)] for host in hosts]
    group = here.launch(
        launcher=here.name, hosts=hosts, counts=counts, cpus=cpus, cpus_per_task=options.depth
    )
    tasks = []
    for rank, (host, local) in enumerate(placed):
        env = _handed_on(here, options, host, kind)
        env |= _variables(
            kind, rank, len(placed), local, counts[hosts.index(host)], hosts.index(host), len(hosts), host
        )
        tasks.append(Task(host, options.command, env, options.folder or here.cwd))

    def ends(number: int, code: int) -> None:
        if code:
            here.complain(f"{here.name}: rank {number} on {tasks[number].host} ended with exit code {code}")

    return run_all(here, tasks, group, given_input(here), ends, forwards=True)


def _family(here: Here) -> str:
    """Whose options the command line has: of Open MPI, if it may be."""
    kind = next(iter(families_of(here.args)), "openmpi")
    if kind != "openmpi":
        here.note(f"{here.name} is taken for that of {FAMILIES[kind]}, whose options it gets")
    return kind


def _refused(here: Here, why: str) -> int:
    here.note(f"{' '.join([here.name, *here.args])[:200]}: {why}", "bad-mpirun")
    here.complain(f"{here.name}: {why}")
    return 1


def _read(here: Here, path: str) -> str | None:
    try:
        return Path(here.cwd, path).read_text(errors="replace")
    except OSError:
        return None


def _slots(here: Here, options: MpiOptions, kind: str) -> dict[str, int]:
    """Host → slots: from the command line, else from the scheduler."""
    known = {host.partition(".")[0]: host for host in here.job.hosts}
    address = {here.job.address(host): host for host in here.job.hosts}
    if options.hosts:
        found: dict[str, int] = {}
        for name, slots in options.hosts:
            host = (
                {"localhost": here.host, "127.0.0.1": here.host}.get(name)
                or address.get(name)
                or known.get(name.partition(".")[0], name)
            )
            default = 1 if kind == "openmpi" else options.per_node or 1
            found[host] = found.get(host, 0) + (default if slots is None else slots)
        return found
    env = here.env
    if "SLURM_JOB_ID" in env:
        if env.get("SLURM_TASKS_PER_NODE"):
            counts = expand_counts(env["SLURM_TASKS_PER_NODE"])
            if len(counts) == len(here.job.hosts):
                return dict(zip(here.job.hosts, counts, strict=True))
        return dict(zip(here.job.hosts, here.job.tasks_per_node(), strict=True))
    if env.get("PBS_NODEFILE"):
        if kind == "openmpi":
            here.note(
                f"{here.name} has no --hostfile: an Open MPI without PBS support would start all ranks here",
                "unknown",
            )
        return dict(zip(here.job.hosts, here.job.mpiprocs, strict=True))
    return {here.host: here.job.cpus[here.job.hosts.index(here.host)] if here.host in here.job.hosts else 1}


def _handed_on(here: Here, options: MpiOptions, host: str, kind: str) -> dict[str, str]:
    """All variables, but for hosts that an Open MPI reaches by a remote shell: those named by -x."""
    named = {}
    for one in options.handed_on:
        name, equals, value = one.partition("=")
        if equals:
            named[name] = value
        elif name in here.env:
            named[name] = here.env[name]
    remote = options.remote_shell or "OMPI_MCA_plm_rsh_agent" in here.env
    if kind == "openmpi" and remote and host != here.host:
        if here.job.scheduler == "slurm":
            path = f"{here.scenario.bin}:/usr/local/bin:/usr/bin:/bin"
            env = {"PATH": path, "HOME": here.scenario.home, "USER": here.scenario.user}
        else:
            env = pbs_env.task_environment(here.scenario, here.env, host, 2)
        return {**env, **named}
    if options.handed_on_all is False:
        return {"PATH": here.env.get("PATH", ""), "HOME": here.env.get("HOME", "/"), **named}
    if "SLURM_JOB_ID" in here.env and host != here.host:
        return {**_daemon_environment(here, host), **named}
    return {**here.env, **named}


def _daemon_environment(here: Here, host: str) -> dict[str, str]:
    """Under SLURM mpirun reaches other nodes by an srun of one daemon each: ranks there have that step's variables."""
    others = [one for one in here.job.hosts if one != here.host]
    size = str(len(others))
    words = {
        "nodes": size,
        "ntasks": size,
        "ntasks-per-node": "1",
        "nodelist": ",".join(others),
        "overlap": "",
    }
    given = SrunOptions(words)
    plan = plan_step(
        here.job, given, inherited(here.env, here.scenario.slurm_version), launched_from=here.host
    )
    if plan.step is None:
        return dict(here.env)
    place = next(task for task in plan.step.tasks if task.host == host)
    return {**task_environment(here.scenario, here.env, plan.step, place), "SLURM_NTASKS_PER_NODE": "1"}


def _variables(
    kind: str, rank: int, size: int, local: int, local_size: int, node: int, nodes: int, host: str
) -> Mapping[str, str]:
    if kind == "openmpi":
        values = {
            "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size, "OMPI_COMM_WORLD_LOCAL_RANK": local,
            "OMPI_COMM_WORLD_LOCAL_SIZE": local_size, "OMPI_COMM_WORLD_NODE_RANK": local, "OMPI_UNIVERSE_SIZE": size,
            "OMPI_MCA_orte_num_nodes": nodes, "PMIX_RANK": rank, "PMIX_HOSTNAME": host,
        }  # fmt: skip
    elif kind == "pals":
        values = {
            "PALS_RANKID": rank, "PALS_LOCAL_RANKID": local, "PALS_LOCAL_SIZE": local_size, "PALS_NODEID": node,
            "PALS_SIZE": size,
            "PMI_RANK": rank, "PMI_SIZE": size, "PMI_LOCAL_RANK": local, "PMI_LOCAL_SIZE": local_size,
            "PALS_APID": "a1",
        }  # fmt: skip
    else:
        values = {
            "PMI_RANK": rank, "PMI_SIZE": size, "MPI_LOCALRANKID": local, "MPI_LOCALNRANKS": local_size,
        }  # fmt: skip
    return {name: str(value) for name, value in values.items()}
