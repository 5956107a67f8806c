"""``JobSpec``: one job, described once, with nothing left to decide.

Every field is a flag, a key of ``job.toml`` and a key of a site's ``[defaults]``, by the same name with dashes or
underscores. The flag is declared beside the field (``Flag``), and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from rankup.core.arrays import parse_array
from rankup.core.rundir import LONGEST_NAME
from rankup.core.units import parse_duration, parse_size
from rankup.findings.engine import FactMissing
from rankup.spec.flag import AROUND, ENVIRONMENT, EVERYWHERE, LAUNCH, RESOURCES, TIME_LIMIT, WHAT, Flag

LAUNCHERS = ("single", "torchrun", "srun", "mpirun")
FANOUTS = ("auto", "srun", "pbsdsh", "mpiexec", "pbs_tmrsh", "ssh")
# Fields of machines that are started by hand: in the job.toml of such a run, and nothing to a scheduler.
BY_HAND = ("node_rank", "rdzv_endpoint", "rdzv_timeout")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_JOB_ID = re.compile(r"\d+(_\d+|\[\d*\])?([.;][\w.-]+)?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What the job's script itself keeps in its shell while the job's variables are set there.
OF_THE_SCRIPT = frozenset(
    {
        *(
            "BASE",
            "CONSEQUENCE",
            "END",
            "HOSTS",
            "INTERFACE",
            "JOB",
            "MAX_REQUEUES",
            "NODES_MAY_SUBMIT",
            "PLACES",
            "cores",
            "RUN",
            "RUNS",
            "STOP_BEFORE",
        ),
        *("RANKUP_RUN", "RANKUP_RUN_DIR", "RANKUP_SUCCESSOR", "RANKUP_TASK"),
        *(
            "address",
            "called",
            "i",
            "log_began",
            "log_file",
            "holder",
            "peer",
            "port",
            "python",
            "terminated",
        ),
    }
)

Seconds = Annotated[
    int, BeforeValidator(lambda v: parse_duration(v) if isinstance(v, str) else v), Field(gt=0)
]
MiB = Annotated[int, BeforeValidator(lambda v: parse_size(v) if isinstance(v, str) else v), Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class JobSpec(BaseModel):
    """A script and its arguments, what it needs, how its ranks are started, and what happens when time runs out.

    Resources are per node: ``nodes`` × (``gpus_per_node``, ``nproc_per_node`` processes of ``cpus_per_task`` cores,
    ``mem`` MiB), for ``time`` seconds. Strings such as ``"24h"`` and ``"32G"`` are read. ``gpus_per_node`` 0 is a
    job without GPUs. An empty string, an empty tuple and None mean: not asked for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # What runs: "train.py --lr 1" as tokens; "-m package.module …"; or an executable.
    command: tuple[str, ...] = Field(min_length=1)
    name: Annotated[str, Flag(WHAT, "name of the run; default: the script's", of=EVERYWHERE)]
    folder: Path  # where the command runs: absolute, seen by all nodes

    nodes: Annotated[
        Count,
        Flag(RESOURCES, "number of nodes", "N"),
        Flag(
            LAUNCH,
            "machines started by hand; default: the allocation, else this one",
            "N",
            ("--nnodes",),
            ("run",),
        ),
    ] = 1
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
        str, Flag(RESOURCES, "queue or partition of the job", names=("--queue", "--partition"))
    ] = ""
    account: Annotated[str, Flag(RESOURCES, "account to charge")] = ""
    exclusive: Annotated[bool, Flag(RESOURCES, "allocate whole nodes")] = False
    directives: Annotated[
        tuple[str, ...],
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
    # Machines by hand: a job's script works these out itself.
    node_rank: Annotated[
        int,
        Field(ge=0),
        Flag(LAUNCH, "several machines by hand: number of this one, from 0", "I", of=("run",)),
    ] = 0
    rdzv_endpoint: Annotated[
        str,
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
        tuple[str, ...], Flag(ENVIRONMENT, "bash to run before modules are loaded; may be repeated", "BASH")
    ] = ()
    module_purge: Annotated[bool, Flag(ENVIRONMENT, "unload all modules first")] = False
    modules: Annotated[
        tuple[str, ...],
        Flag(ENVIRONMENT, "module to load, in this order; may be repeated", "MODULE", ("--module",)),
    ] = ()
    venv: Annotated[str, Flag(ENVIRONMENT, "virtual environment to activate", "DIR")] = ""
    conda: Annotated[str, Flag(ENVIRONMENT, "conda environment to activate", "NAME|DIR")] = ""
    container: Annotated[str, Flag(ENVIRONMENT, "Apptainer image to run in", "IMAGE")] = ""
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
        dict[str, str],
        Flag(
            ENVIRONMENT, "set a variable; NAME passes your own value as a secret; may be repeated", "K=V|NAME"
        ),
    ] = Field(default_factory=dict)
    secrets: tuple[str, ...] = ()  # names of variables whose values travel in a file of mode 0600: --env NAME
    pre: Annotated[
        tuple[str, ...], Flag(ENVIRONMENT, "bash to run before the command; may be repeated", "BASH")
    ] = ()  # the user's own words
    python: Annotated[str, Flag(ENVIRONMENT, "Python that runs *.py", "EXE", of=EVERYWHERE)] = "python"
    threads: Annotated[
        Count | None,
        Flag(ENVIRONMENT, "threads of each process; default: cores / processes", "N", of=EVERYWHERE),
    ] = None

    max_requeues: Annotated[
        int, Field(ge=0), Flag(TIME_LIMIT, "requeue at most K times when time runs out", "K")
    ] = 10
    # How long before the end the ranks are asked to save; see ``lead``.
    stop_before: Annotated[
        Seconds | None, Flag(TIME_LIMIT, "request a snapshot so long before the time limit", "TIME")
    ] = None

    mail: Annotated[str, Flag(AROUND, "send mail when the job begins, ends or fails", "ADDRESS")] = ""
    after: Annotated[
        tuple[str, ...], Flag(AROUND, "start after this job has succeeded; may be repeated", "ID")
    ] = ()  # ids of jobs
    array: Annotated[str, Flag(AROUND, "job array: one task for each index", "0-9[%4]")] = ""
    runs_root: Annotated[
        Path, Flag(AROUND, "directory of the run directories; default: runs", "DIR", of=EVERYWHERE)
    ] = Path("runs")
    nccl_debug: Annotated[bool, Flag(AROUND, "let NCCL log what it does (NCCL_DEBUG=INFO)")] = False
    sample_gpus: Annotated[
        int, Field(ge=0), Flag(AROUND, "log the use of the GPUs every so many seconds", "SECONDS")
    ] = 0  # 0: never

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
    def world_size(self) -> int:
        return self.nodes * self.nproc_per_node

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

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a run: letters, digits, '.', '_' and '-'")
        if len(name) > LONGEST_NAME:
            raise ValueError(f"a run's name has at most {LONGEST_NAME} characters, got {len(name)}")
        return name

    @field_validator("after")
    @classmethod
    def _job_ids(cls, ids: tuple[str, ...]) -> tuple[str, ...]:
        for ident in ids:
            if not _JOB_ID.fullmatch(ident):
                raise ValueError(f"{ident!r} is not the id of a job: use e.g. 4711, 4711_3 or 12.server")
        return ids

    @field_validator("env")
    @classmethod
    def _variables(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            _check_variable(name)
        return env

    @field_validator("secrets")
    @classmethod
    def _secret_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            _check_variable(name)
        return names

    @field_validator("directives", "pre", "pre_modules")
    @classmethod
    def _one_line(cls, lines: tuple[str, ...]) -> tuple[str, ...]:
        for line in lines:
            if "\n" in line or "\r" in line:
                raise ValueError(f"{line!r} has to be one line")
        return lines

    @field_validator("command", "env", "pre", "python", "folder", "runs_root")
    @classmethod
    def _text(cls, value: Any) -> Any:
        # No process can be given a null, and bash would end the word there.
        texts = [*value, *value.values()] if isinstance(value, dict) else value
        for text in texts if isinstance(texts, (list, tuple)) else [str(texts)]:
            if "\0" in text:
                raise ValueError("a null character cannot be passed to a process")
        return value

    @field_validator("array")
    @classmethod
    def _indices(cls, array: str) -> str:
        parse_array(array)
        return array

    @field_validator("queue", "account", "mail", "after", "venv", "conda", "container", "modules")
    @classmethod
    def _no_control_characters(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for text in (value,) if isinstance(value, str) else value:
            if any(ord(c) < 32 for c in text):
                raise ValueError(f"{text!r} holds a control character")
        return value

    @field_validator("queue", "account", "mail", "after")
    @classmethod
    def _one_word(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        # They stand in directives, which no shell unquotes.
        for text in (value,) if isinstance(value, str) else value:
            if re.search(r"[\s#'\"]", text):
                raise ValueError(f"{text!r} has to be one word without quotes")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> JobSpec:
        if reasons := contradictions(self):
            raise ContradictionError(reasons)
        return self


class ContradictionError(ValueError):
    """Values of a job, each valid, that do not fit together; ``reasons`` has a sentence for each contradiction."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


def contradictions(job: JobSpec) -> list[str]:
    """What in a job does not fit together. Of a job with missing values: what the others contradict."""
    reasons = []
    for rule in _RULES:
        with suppress(FactMissing):
            reasons.append(rule(job))
    return [reason for reason in reasons if reason]


def _one_process(job: JobSpec) -> str:
    if job.launcher == "single" and job.world_size > 1:
        return f"the launcher single starts one process, but the job has {job.world_size}"
    return ""


def _restarts(job: JobSpec) -> str:
    if job.max_restarts and job.launcher != "torchrun":
        return f"max_restarts requires the launcher torchrun, and the launcher is {job.launcher}"
    return ""


def _stop_before_end(job: JobSpec) -> str:
    if job.time and job.stop_before and job.stop_before >= job.time:
        return f"--stop-before ({job.stop_before} s) must be shorter than --time ({job.time} s)"
    return ""


def _one_environment(job: JobSpec) -> str:
    if job.conda and job.venv:
        return "venv and conda are two environments: choose one"
    if job.conda and job.container:
        return "a container has its own Python, and not conda's: --conda '' or --container ''"
    return ""


def _gpus_each(job: JobSpec) -> str:
    if job.gpus_per_node and job.nproc_per_node > job.gpus_per_node:
        return f"{job.nproc_per_node} processes would share {job.gpus_per_node} GPUs on each node"
    return ""


_RULES: tuple[Callable[[JobSpec], str], ...] = (
    _one_process,
    _restarts,
    _stop_before_end,
    _one_environment,
    _gpus_each,
)


def _check_variable(name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a variable")
    if name in OF_THE_SCRIPT:
        raise ValueError(f"{name!r} is a variable of the job's own script: choose another name")
