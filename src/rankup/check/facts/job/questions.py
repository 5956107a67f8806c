"""What several rules ask of a job script."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Document, Span
from rankup.check.facts.job.commands import Command, Literal, Output, Step, Value, Variable
from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.tools import TOOLS

#: Variables of the number of processes.
_PROCESSES = {
    "WORLD_SIZE", "SLURM_NTASKS", "SLURM_NPROCS", "NUM_PROCESSES", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
}  # fmt: skip
LOCAL = ("localhost", "127.0.0.1", "127.0.1.1", "::1")
#: Variables that are 0 in the batch shell, and a rank in a step.
RANK_VARIABLES = {
    "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "OMPI_COMM_WORLD_RANK": "empty",
    "OMPI_COMM_WORLD_LOCAL_RANK": "empty", "OMPI_COMM_WORLD_NODE_RANK": "empty", "PMI_RANK": "empty",
    "PMI_LOCAL_RANK": "empty", "PMIX_RANK": "empty", "PALS_RANKID": "empty", "PALS_NODEID": "empty",
    "PALS_LOCAL_RANKID": "empty", "PBS_NODENUM": "0",
}  # fmt: skip


def fans_out(job: Job) -> bool:
    """Whether some step starts something that may train, or may start what trains."""
    parents = {id(command.parent) for command in job.commands}
    for command in job.commands:
        if command.in_output or not command.argv or id(command) in parents:
            continue
        if command.step is not None:  # nobody knows what it starts: srun $ARGUMENTS
            return True
        if command.shell.step is not None and command.name not in TOOLS:
            return True
    return any(_has_hosts(launch) for launch in job.launches) or _manual(job)


def _has_hosts(launch: Launch) -> bool:
    """deepspeed starts its processes on other nodes by itself, if it knows them."""
    return launch.launcher == "deepspeed" and bool(
        launch.options.keys() & {"hostfile", "launcher", "include"}
    )


def _manual(job: Job) -> bool:
    """Other ways to reach the nodes: submitting more jobs, Ray, Dask, GNU parallel, a site's own mpirun."""
    return any(
        command.name in ("sbatch", "qsub", "ray", "dask", "parallel", "flux", "salloc")
        or command.name.endswith(("mpirun", "mpiexec"))
        for command in job.commands
    )


def agents(job: Job) -> Iterator[Launch]:
    """The launches of torchrun and of torch.distributed.launch."""
    return (launch for launch in job.launches if launch.is_torchrun)


def nnodes(job: Job, launch: Launch) -> int | None:
    """The number of nodes that a launcher is told; None if it is unknown, or a range."""
    value = launch.options.get("nnodes")
    if value is None:
        return 1
    known = value.known
    if known is not None and ":" in known:
        low, _, high = known.partition(":")
        return int(low) if low == high and low.isdigit() else None
    return job.number(value)


def lacks_srun(job: Job, launch: Launch) -> bool:
    """Whether a launcher of ranks runs on the first node alone, in a SLURM job of several nodes."""
    return (
        launch.step is None
        and job.scheduler == "slurm"
        and job.request.many_nodes
        and job.complete
        and not launch.command.in_loop
        and not fans_out(job)
    )


def number_of_processes(job: Job, value: Value) -> str | None:
    """The variable of the number of processes that stands there, before the script's values were put in its place."""
    for atom in value.atoms:
        if isinstance(atom, Variable) and atom.name in _PROCESSES:
            return atom.name
    for name in _PROCESSES & job.assigned.keys():
        if any(binding.value.atoms and _same(binding.value, value) for binding in job.assigned[name]):
            return name
    return None


def _same(one: Value, other: Value) -> bool:
    return len(one.atoms) == len(other.atoms) and all(
        a.span == b.span for a, b in zip(one.atoms, other.atoms, strict=True)
    )


def nproc(job: Job, launch: Launch) -> int | None:
    """Processes per node; None for gpu, auto and what is unknown."""
    value = launch.options.get("nproc_per_node")
    return job.number(value) if value is not None else (1 if launch.is_torchrun else None)


def devices(value: Value | None) -> list[int]:
    """The GPUs of a CUDA_VISIBLE_DEVICES with known numbers; none if it has others."""
    words = (value.known or "").split(",") if value is not None else []
    return [int(word) for word in words] if all(word.strip().isdigit() for word in words) else []


def activated(command: Command) -> str:
    """The kind of environment that a command activates: "conda", also by ``source activate NAME``, or "venv"; else
    ""."""
    if command.name in ("source", ".") and len(command.argv) > 1:
        is_one = command.argv[1].tail.rpartition("/")[2] == "activate"
        return ("conda" if len(command.argv) > 2 else "venv") if is_one else ""
    return (
        "conda"
        if command.name in ("conda", "mamba", "micromamba") and command.args[:1] == ("activate",)
        else ""
    )


def uses_c10d(launch: Launch) -> bool:
    backend = launch.options.get("rdzv_backend")
    return backend is not None and backend.known != "static"


def endpoint(launch: Launch) -> tuple[str, Value] | None:
    """The host that all agents meet at: option and value."""
    for name in ("rdzv_endpoint", "master_addr"):
        value = launch.options.get(name)
        if value is not None and value.atoms:
            return name, value
    return None


def host_of(value: Value) -> str | None:
    """The host in ``host:port``, if it is known."""
    head = value.head
    if value.known is None and ":" not in head:
        return None
    return head.partition(":")[0]


def port_of(value: Value) -> str | None:
    """The port in ``host:port``, if it is known."""
    tail = value.tail
    return tail.rpartition(":")[2] if ":" in tail else None


def rank_variables(value: Value) -> Iterator[Variable]:
    """Variables in a value that are 0 or empty because the batch shell expands them."""
    for variable in value.variables():
        if variable.name in RANK_VARIABLES and variable.shell.step is None:
            yield variable


def is_many(step: Step | None) -> bool:
    """Whether a step certainly has several tasks."""
    return step is not None and ((step.tasks or 0) > 1 or (step.nodes or 0) > 1)


def outputs_of(value: Value, *names: str) -> Iterator[tuple[Output, Command]]:
    """Commands of these names in the ``$(…)`` of a value."""
    for output in value.outputs():
        for command in output.commands:
            if command.name in names:
                yield output, command


def is_written(document: Document, value: Value) -> Span | None:
    """Where a value stands in the script as it is, so that it can be replaced; None if it was put together."""
    literals = [atom for atom in value.atoms if isinstance(atom, Literal)]
    if len(literals) != 1 or len(value.atoms) != 1:
        return None
    span = literals[0].span
    return span if document[span] == literals[0].text else None


def trains(job: Job, launch: Launch) -> bool:
    """Whether a launch certainly starts a program of several ranks: by its launcher, its variables or its text."""
    if launch.forms_ranks:
        return True
    if any(
        launch.exported(name) is not None for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
    ):
        return True
    return is_distributed(launch) is True


def is_distributed(launch: Launch) -> bool | None:
    """Whether the program forms a process group; None if it is not known."""
    program = launch.program
    if program is None or not program.whole:
        return True if program is not None and program.distributed else None
    # Of the frameworks, only Lightning wants a process for each GPU to be started by somebody else.
    return program.distributed or "lightning" in program.frameworks or (None if program.frameworks else False)


def uses_torch(launch: Launch) -> bool | None:
    return None if launch.program is None else launch.program.uses_torch


def statement_start(document: Document, span: Span) -> int:
    """The start of the line in which a command begins, or of the first of its continued lines."""
    line = document.line_of(span.start)
    while line and document.line(line - 1).rstrip().endswith("\\"):
        line -= 1
    return document.starts[line]
