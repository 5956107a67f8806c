"""``JobSpec``: one job, described once, with nothing left to decide.

Every field is a flag, a key of ``job.toml`` and a key of a site's ``[defaults]``, by the same name with dashes or
underscores. The flag is declared beside the field (``Flag``), and nowhere else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from rankup.core.endpoint import Endpoint
from rankup.spec.field_types import (
    Array,
    BashLines,
    Command,
    Count,
    EndpointText,
    EnvVariables,
    Folder,
    JobIds,
    Lines,
    MiB,
    PathsInside,
    Plain,
    PlainTexts,
    RunName,
    Seconds,
    StageSources,
    Text,
    VariableNames,
    Word,
)
from rankup.spec.flag import AROUND, ENVIRONMENT, EVERYWHERE, LAUNCH, RESOURCES, TIME_LIMIT, WHAT, Flag

LAUNCHERS = ("single", "torchrun", "srun", "mpirun")
ContainerRuntime = Literal[
    "apptainer", "singularity", "podman-hpc", "shifter", "sarus", "pyxis", "edf", "uenv"
]
FANOUTS = ("auto", "srun", "pbsdsh", "mpiexec", "pbs_tmrsh", "ssh")
# Fields of runs that start here and now, on machines by hand: nothing to a scheduler.
RUN_ONLY = ("node_rank", "rdzv_endpoint", "rdzv_timeout")


_NO_SPARES = (
    "--spare is for torchrun or srun on two nodes and more, without --stage: the first node cannot be replaced, and a "
    "spare one has nothing on its disk"
)


class JobSpec(BaseModel):
    """A script and its arguments, what it needs, how its ranks are started, and what happens when time runs out.

    Resources are per node: ``nodes`` × (``gpus_per_node``, ``nproc_per_node`` processes of ``cpus_per_task`` cores,
    ``mem`` MiB), for ``time`` seconds. Strings such as ``"24h"`` and ``"32G"`` are read. ``gpus_per_node`` 0 is a
    job without GPUs. An empty string, an empty tuple and None mean: not asked for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # What runs: "train.py --lr 1" as tokens; "-m package.module …"; or an executable.
    command: Command
    name: Annotated[RunName, Flag(WHAT, "name of the run; default: the script's", of=EVERYWHERE)]
    folder: Folder  # where the command runs: absolute, seen by all nodes

    nodes: Annotated[
        Count,
        Flag(RESOURCES, "number of nodes", "N"),
        Flag(
            LAUNCH,
            "the first N nodes of the allocation (default: all), or machines started by hand; 1: this one",
            "N",
            ("--nnodes",),
            ("run",),
        ),
    ] = 1
    spare: Annotated[
        int,
        Field(ge=0),
        Flag(RESOURCES, "SLURM: nodes to ask for besides; each may replace one that is broken or lost", "N"),
    ] = 0
    gpus_per_node: Annotated[
        int, Field(ge=0), Flag(RESOURCES, "GPUs on each node; 0: a job without GPUs", "G")
    ] = 0
    gpu_type: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9_.-]*$"),
        Flag(RESOURCES, "SLURM's name of the GPUs, e.g. a100", "NAME"),
    ] = ""
    nproc_per_node: Annotated[
        Count, Flag(RESOURCES, "processes on each node; auto: one per GPU, else 1", "N|auto", of=EVERYWHERE)
    ] = 1
    cpus_per_task: Annotated[Count | None, Flag(RESOURCES, "CPU cores of each process", "C")] = None
    mem: Annotated[MiB | None, Flag(RESOURCES, "memory on each node, e.g. 32G", "SIZE")] = None
    time: Annotated[Seconds | None, Flag(RESOURCES, "time limit: 90m, 24h, 1d12h or HH:MM:SS", "TIME")] = None
    # SLURM calls it a partition
    queue: Annotated[
        Word, Flag(RESOURCES, "queue or partition of the job", names=("--queue", "--partition"))
    ] = ""
    account: Annotated[Word, Flag(RESOURCES, "account to charge")] = ""
    exclusive: Annotated[bool, Flag(RESOURCES, "allocate whole nodes")] = False
    directives: Annotated[
        Lines,
        Flag(RESOURCES, "a line for #SBATCH or #PBS; may be repeated", "TEXT", ("--directive",)),
    ] = ()

    # Who forms the ranks, and who reaches the nodes
    launcher: Annotated[
        Literal["single", "torchrun", "srun", "mpirun"],
        Flag(LAUNCH, "what forms the ranks", "|".join(LAUNCHERS)),
    ] = "single"
    fanout: Annotated[
        Literal["auto", "srun", "pbsdsh", "mpiexec", "pbs_tmrsh", "ssh"],
        Flag(LAUNCH, "what starts one agent on each node", "|".join(FANOUTS)),
    ] = "auto"
    # torchrun's, within one job
    max_restarts: Annotated[
        int,
        Field(ge=0),
        Flag(LAUNCH, "restart all processes after a failure, at most K times", "K", of=EVERYWHERE),
    ] = 0
    # torchrun's, since torch 2.9
    numa_binding: Annotated[
        Literal["", "node", "socket", "exclusive", "core-complex"],
        Flag(
            LAUNCH,
            "have torchrun bind each process to the cores next to its GPU",
            "node|socket|exclusive|core-complex",
            of=EVERYWHERE,
        ),
    ] = ""
    # Machines by hand: a job's script works these out itself.
    node_rank: Annotated[
        int,
        Field(ge=0),
        Flag(LAUNCH, "several machines by hand: number of this one, from 0", "I", of=("run",)),
    ] = 0
    rdzv_endpoint: Annotated[
        EndpointText,
        Flag(
            LAUNCH,
            "several machines by hand: address of node 0 and a free port there",
            "HOST:PORT",
            of=("run",),
        ),
    ] = ""
    rdzv_timeout: Annotated[
        float,
        Field(gt=0),
        Flag(
            LAUNCH,
            "several machines by hand: wait at most so long for each other; default: 300",
            "SECONDS",
            of=("run",),
        ),
    ] = 300.0

    # The environment of the ranks, in the order in which it is set up
    pre_modules: Annotated[
        BashLines, Flag(ENVIRONMENT, "bash to run before modules are loaded; may be repeated", "BASH")
    ] = ()
    module_purge: Annotated[bool, Flag(ENVIRONMENT, "unload all modules first")] = False
    modules: Annotated[
        PlainTexts,
        Flag(ENVIRONMENT, "module to load, in this order; may be repeated", "MODULE", ("--module",)),
    ] = ()
    venv: Annotated[Plain, Flag(ENVIRONMENT, "virtual environment to activate", "DIR")] = ""
    conda: Annotated[Plain, Flag(ENVIRONMENT, "conda environment to activate", "NAME|DIR")] = ""
    pixi: Annotated[Plain, Flag(ENVIRONMENT, "pixi workspace to activate, as it is installed", "DIR")] = ""
    container: Annotated[Plain, Flag(ENVIRONMENT, "container image to run in", "IMAGE")] = ""
    # "" is the site's
    container_runtime: Annotated[
        ContainerRuntime | Literal[""],
        Flag(ENVIRONMENT, "what runs the image; default: the site's", "|".join(get_args(ContainerRuntime))),
    ] = ""
    binds: Annotated[
        tuple[str, ...],
        Flag(
            ENVIRONMENT,
            "directory to bind into the container; may be repeated",
            "SRC[:DST[:ro]]",
            ("--bind",),
        ),
    ] = ()
    env: Annotated[
        EnvVariables,
        Flag(
            ENVIRONMENT, "set a variable; NAME passes your own value as a secret; may be repeated", "K=V|NAME"
        ),
    ] = Field(default_factory=dict)
    secrets: VariableNames = ()  # names of variables whose values travel in a file of mode 0600: --env NAME
    pre: Annotated[
        BashLines, Flag(ENVIRONMENT, "bash to run before the command; may be repeated", "BASH")
    ] = ()  # the user's own words
    python: Annotated[Text, Flag(ENVIRONMENT, "Python that runs *.py", "EXE", of=EVERYWHERE)] = "python"
    threads: Annotated[
        Count | None,
        Flag(ENVIRONMENT, "threads of each process; default: cores / processes", "N", of=EVERYWHERE),
    ] = None

    # What the nodes have on their own disks while the job runs: [stage] of a job.toml
    stage: Annotated[
        StageSources,
        Flag(
            ENVIRONMENT,
            "copy a file, archive or folder to each node's disk, as {stage}/NAME; may be repeated",
            "NAME=PATH",
        ),
    ] = Field(default_factory=dict)
    back: Annotated[
        PathsInside,
        Flag(
            ENVIRONMENT,
            "copy what matches below {stage} to the run directory at the end; may be repeated",
            "PATTERN",
        ),
    ] = ()

    max_requeues: Annotated[
        int, Field(ge=0), Flag(TIME_LIMIT, "requeue at most K times when time runs out", "K")
    ] = 10
    # How long before the end the ranks are asked to save; see ``lead``.
    stop_before: Annotated[
        Seconds | None, Flag(TIME_LIMIT, "request a snapshot so long before the time limit", "TIME")
    ] = None

    # For a program that the job cannot ask to save; () means any file that it may have written.
    saves: Annotated[
        PlainTexts,
        Flag(
            TIME_LIMIT,
            "files from which the program goes on: an attempt without a new one got nowhere; may be repeated",
            "PATTERN",
        ),
    ] = ()

    # "" is stop in a job of a queue; here and now it is said, and the run goes on.
    lost: Annotated[
        Literal["", "stop", "accept"],
        Flag(
            TIME_LIMIT,
            "if values change in training that no snapshot has: end the job (stop, the default of a job), or go on",
            "stop|accept",
            of=EVERYWHERE,
        ),
    ] = ""

    mail: Annotated[Word, Flag(AROUND, "send mail when the job begins, ends or fails", "ADDRESS")] = ""
    after: Annotated[
        JobIds, Flag(AROUND, "start after this job has succeeded; may be repeated", "ID")
    ] = ()  # ids of jobs
    after_any: Annotated[
        JobIds, Flag(AROUND, "start after this job has ended, in whatever way; may be repeated", "ID")
    ] = ()
    array: Annotated[Array, Flag(AROUND, "job array: one task for each index", "0-9[%4]")] = ""
    runs_root: Annotated[
        Folder, Flag(AROUND, "directory of the run directories; default: runs", "DIR", of=EVERYWHERE)
    ] = Path("runs")
    freeze: Annotated[
        bool, Flag(AROUND, "copy the code at the submit: all attempts run it as it was then")
    ] = False
    nccl_debug: Annotated[bool, Flag(AROUND, "let NCCL log what it does (NCCL_DEBUG=INFO)")] = False
    preflight: Annotated[
        bool, Flag(AROUND, "examine the nodes first, if they have rankup, and end if one is broken")
    ] = False
    proof: Annotated[
        bool,
        Flag(
            AROUND,
            "in jobs of an hour and more, prove first that a resume gives the same model; on by default",
        ),
    ] = True
    monitor: Annotated[
        bool,
        Flag(
            AROUND,
            "record the use of GPUs, CPUs, memory and network on each node; on by default",
            of=EVERYWHERE,
        ),
    ] = True

    @property
    def is_python(self) -> bool:
        """Whether Python runs the command: a script, an archive, a folder with a ``__main__.py``, or ``-m``."""
        first = self.command[0]
        return (
            first == "-m"
            or first.endswith((".py", ".pyz", ".pyzw"))
            or (self.folder / first / "__main__.py").is_file()
        )

    @property
    def interpreter(self) -> str:
        """A virtual environment is activated outside of a container; inside it is its Python that makes it one."""
        inside = self.container and self.venv and self.python == "python"
        return f"{self.venv}/bin/python" if inside else self.python

    @property
    def rank_command(self) -> tuple[str, ...]:
        """What one rank executes."""
        return (self.interpreter, *self.command) if self.is_python else self.command

    @property
    def uses_local_disk(self) -> bool:
        """Whether its script brings data to the nodes' own disks, or results back from there."""
        return bool(self.stage or self.back)

    @property
    def world_size(self) -> int:
        return self.nodes * self.nproc_per_node

    @property
    def endpoint(self) -> Endpoint | None:
        """Where the nodes of a run meet; None for one node."""
        return Endpoint.parse(self.rdzv_endpoint) if self.rdzv_endpoint and self.nodes > 1 else None

    @property
    def lead(self) -> int:
        """Seconds before the end at which the ranks are asked to save: as said, else 300, or half of a short time."""
        return self.stop_before or min(300, self.time // 2 if self.time else 300)

    @property
    def cpus_per_node(self) -> int | None:
        return None if self.cpus_per_task is None else self.cpus_per_task * self.nproc_per_node

    @property
    def agent_cpus(self) -> int | None:
        """Cores of a node's agent, as torchrun's: those of its ranks; without GPUs at least one for each of them.

        None: the scheduler's default, which may be more than one for each GPU.
        """
        if (
            self.cpus_per_task is None
            and self.nproc_per_node > 1
            and not (self.gpus_per_node or self.exclusive)
        ):
            return self.nproc_per_node
        return self.cpus_per_node

    @property
    def contradictions(self) -> list[str]:
        """What does not fit together, a sentence each. A missing value (see ``PartialJob``) contradicts nothing."""
        values = {**dict.fromkeys(JobSpec.model_fields), **self.__dict__}
        launcher, nodes, nproc, gpus = (
            values[k] for k in ("launcher", "nodes", "nproc_per_node", "gpus_per_node")
        )
        time, lead = values["time"], values["stop_before"]
        environments = [key for key in ("venv", "conda", "pixi") if values[key]]
        reasons = []
        if launcher == "single" and nodes and nproc and nodes * nproc > 1:
            reasons.append(f"the launcher single starts one process, but the job has {nodes * nproc}")
        of_torchrun = [key for key in ("max_restarts", "numa_binding") if values[key]]
        if of_torchrun and launcher not in ("torchrun", None):
            reasons.append(f"{of_torchrun[0]} requires the launcher torchrun, and the launcher is {launcher}")
        if time and lead and lead >= time:
            reasons.append(f"--stop-before ({lead} s) must be shorter than --time ({time} s)")
        by_srun = launcher in ("torchrun", "srun", None)
        if values["spare"] and (nodes == 1 or not by_srun or values["stage"] or values["back"]):
            reasons.append(_NO_SPARES)
        if len(environments) > 1:
            reasons.append(f"{' and '.join(environments)} are {len(environments)} environments: choose one")
        elif values["container"] and environments not in ([], ["venv"]):
            name = environments[0]
            reasons.append(f"a container has its own Python, and not {name}'s: --{name} '' or --container ''")
        if gpus and nproc and nproc > gpus:
            reasons.append(f"{nproc} processes would share {gpus} GPUs on each node")
        return reasons
