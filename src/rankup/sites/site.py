"""``Site``: what one cluster is like, as its centre documents it. One TOML file each, in ``sites/``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rankup.core.units import parse_duration, parse_size
from rankup.spec.jobspec import ContainerRuntime, JobSpec

# The tables of conditional defaults: a job's own tables win over [defaults], later ones over earlier ones.
Condition = Literal["cpu", "gpu", "one_node", "many_nodes"]
WHEN: tuple[Condition, ...] = get_args(Condition)


_DATE = r"^\d{4}(-\d\d(-\d\d)?)?$"


class Source(BaseModel):
    """Where a profile's values were read, and when: a date, a month or a year."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    page: str = ""
    seen: Annotated[str, Field(pattern=_DATE)] = ""


class Sources(Source):
    """``of`` are the keys that another page says: ``node``, or ``when.gpu.modules``."""

    of: dict[str, Source] = Field(default_factory=dict)

    def of_key(self, key: str) -> Source:
        """The source of the value at ``key`` (dotted)."""
        parts = key.split(".")
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        return next((self.of[prefix] for prefix in prefixes if prefix in self.of), self)

    @property
    def oldest(self) -> str:
        return min((source.seen for source in (self, *self.of.values()) if source.seen), default="")


class Node(BaseModel):
    """A compute node. None or "" where the profile does not say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpus: Annotated[int, Field(ge=0)] = 0
    gpu: str = ""  # "V100 32GB"
    device: str = "cuda"  # what torch calls its GPUs: "xpu" of Intel's; those of ROCm are "cuda", too
    cpus: Annotated[int | None, Field(ge=1)] = None
    memory: str = ""  # "768G"
    mem_per_gpu: str = ""  # "110G": what a job gets with each GPU where it asks for no memory itself
    arch: str = ""  # uname -m
    login_arch: str = ""  # of the login nodes, where it differs
    interface: str = ""  # the network interface that leads to the other nodes
    local_disk: str = ""  # a directory on its own disk, such as "$SLURM_TMPDIR"

    @field_validator("memory", "mem_per_gpu")
    @classmethod
    def _sizes(cls, text: str) -> str:
        if text:
            parse_size(text)
        return text


class Pbs(BaseModel):
    """How this PBS wants to be asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    select: str = ""  # added to each chunk, such as "sales_op=blanca"
    place: str = "scatter"
    whole_nodes: bool = False  # a chunk is a node: jobs name none of its cores, GPUs and memory
    nodes_may_submit: bool = True  # whether qsub works on compute nodes


class Slurm(BaseModel):
    """How this SLURM wants to be asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str = ""  # "24.05.3"
    gpus: Literal["gpus-per-node", "gres"] = "gpus-per-node"
    pick: str = ""  # a GPU's type, for --gpus-per-node=TYPE:N or --gres=gpu:TYPE:N
    expedite: bool = (
        False  # a job that loses a node starts again before all others: SLURM 25.11, where it is enabled
    )
    # The cores next to each GPU of a node, in the order of the GPUs, as srun's mask_cpu takes them.
    masks: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]+$")], ...] = ()


class Mpi(BaseModel):
    """Whose mpirun, and what the site adds to it; ``flags`` replace our own binding and mapping options.

    ``module`` brings it, where the job's own modules do not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["openmpi", "pals"] = "openmpi"
    flags: tuple[str, ...] = ()
    module: str = ""


class Container(BaseModel):
    """The site's way into a container."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runtime: ContainerRuntime = "apptainer"
    flags: tuple[str, ...] = ()  # for every job
    gpu_flags: tuple[str, ...] | None = None  # for those with GPUs; None: the runtime's own
    runscript: bool = False  # apptainer run, not exec: the image's own script sets up its Python
    torchrun: str = "torchrun"  # its path inside the image


class Fabric(BaseModel):
    """What the site's fast network asks of jobs with GPUs on several nodes, beside what they ask for themselves.

    ``binds`` bring the host's network libraries into a container, which finds them in ``libraries`` before its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    modules: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    binds: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


class Site(BaseModel):
    """A cluster: its scheduler, its nodes, and defaults for every job.

    ``defaults`` are keys of ``JobSpec``; below ``when``, those of jobs without GPUs (``cpu``), with GPUs (``gpu``), on
    one node, and on many. ``queue_nodes`` are the nodes of each queue, and ``queue_time`` the
    longest time of a job in it, where known. ``launchers`` are the allowed ones, ``required`` the keys that a user
    has to give (``account``). ``python`` is the version of the Python that the site's modules bring. ``env`` is
    exported in every job; ``paths`` are put before a variable's value (LD_LIBRARY_PATH), and the job's shell
    expands ``$HOME`` and its like in them. ``output`` and ``error`` are the site's names for log files, for scripts
    that are submitted by hand; ``{name}`` is the job's, and no folder may be needed that is not there.
    ``bad_nodes`` is a file of the team with nodes that have failed (``sites.bad_nodes``).
    ``fill_node`` asks to use all GPUs of a node before a second node.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str = ""
    source: Sources = Field(default_factory=Sources)
    untried: bool = False  # written from public pages, and no job of rankup's authors ever ran there
    notes: tuple[str, ...] = ()
    scheduler: Literal["local", "slurm", "pbs", "torque"]
    launchers: Annotated[tuple[Literal["torchrun", "srun", "mpirun"], ...], Field(min_length=1)] = (
        "torchrun",
        "srun",
        "mpirun",
    )
    required: tuple[str, ...] = ()
    python: str = ""
    fill_node: bool = False
    output: str = ""
    error: str = ""
    bad_nodes: str = ""
    node: Node = Field(default_factory=Node)
    slurm: Slurm = Field(default_factory=Slurm)
    pbs: Pbs = Field(default_factory=Pbs)
    mpi: Mpi = Field(default_factory=Mpi)
    containers: Container = Field(default_factory=Container)
    fabric: Fabric = Field(default_factory=Fabric)
    env: dict[str, str] = Field(default_factory=dict)
    paths: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    defaults: dict[str, Any] = Field(default_factory=dict)
    queue_nodes: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    queue_time: dict[str, str] = Field(default_factory=dict)
    when: dict[Condition, dict[str, Any]] = Field(default_factory=dict)

    @property
    def family(self) -> str:
        """local, slurm or pbs: whose variables and node file a job finds. Torque's are those of PBS."""
        return "pbs" if self.scheduler == "torque" else self.scheduler

    def fabric_of(self, spec: JobSpec) -> Fabric:
        """What ``spec`` needs of the fabric: nothing without GPUs, and on one node."""
        return self.fabric if spec.gpus_per_node and spec.nodes > 1 else Fabric()

    def masks_of(self, spec: JobSpec) -> tuple[str, ...]:
        """The cores of each rank of a node. Only where ``spec`` has the whole node, and a rank for each GPU, are they
        the job's own, and next to the rank's GPU."""
        whole = spec.gpus_per_node == spec.nproc_per_node == len(self.slurm.masks)
        return self.slurm.masks if whole and spec.cpus_per_node == self.node.cpus else ()

    @field_validator("queue_time")
    @classmethod
    def _times(cls, times: dict[str, str]) -> dict[str, str]:
        for text in times.values():
            parse_duration(text)
        return times

    @field_validator("output", "error")
    @classmethod
    def _beside_the_script(cls, path: str) -> str:
        if "/" in path and not path.startswith("/"):
            raise ValueError(
                f"{path!r} is below a folder: where it is missing, SLURM ends the job without a word"
            )
        return path
