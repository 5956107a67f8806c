"""Containers: what takes a command into an image, as the same three fields for every runtime (``Entry``).

A runtime is one function from what all of them need (``Image``) to ``Entry``. Words are tokens, in which the job's
shell fills in each ``$NAME``. A site says once what its network needs (``Fabric``), for all runtimes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rankup.core import shell
from rankup.errors import RankupError
from rankup.launchers.base import code, expanded_code
from rankup.node_launchers.agents import choose
from rankup.sites.site import Site
from rankup.spec.jobspec import ContainerRuntime, JobSpec

# A description of the container for runtimes that read one, and what its first process does.
_DESCRIPTION, _INSIDE = "$RUN/container.toml", "$RUN/container.sh"


@dataclass(frozen=True)
class Image:
    """What runs in a container sees: ``ours`` are the job's own folders, ``binds`` those of user and site
    (``SOURCE[:TARGET[:OPTIONS]]``), ``variables`` the names that a rank needs from its host. ``flags`` are the site's
    words for this runtime. ``runscript``: the image's own script starts the command."""

    name: str
    folder: str
    ours: tuple[str, ...]
    binds: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    runscript: bool = False

    @property
    def mounts(self) -> tuple[str, ...]:
        """All of them with their targets."""
        return tuple(bind if ":" in bind else f"{bind}:{bind}" for bind in (*self.ours, *self.binds))


@dataclass(frozen=True)
class Entry:
    """``prelude`` are lines of bash before the ranks start, ``options`` those of the srun that starts them, and
    ``prefix`` comes before a command."""

    prelude: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()


def _apptainer(image: Image) -> Entry:
    binds = (word for bind in (*image.ours, *image.binds) for word in ("--bind", bind))
    return Entry(prefix=("apptainer", "run" if image.runscript else "exec", *image.flags, *binds, image.name))


def _singularity(image: Image) -> Entry:
    return Entry(prefix=("singularity", *_apptainer(image).prefix[1:]))


def _podman_hpc(image: Image) -> Entry:
    """It takes no variable along unless asked; a name that ends in ``*`` stands for all that begin so."""
    variables = (word for name in image.variables for word in ("--env", name))
    mounts = (word for mount in image.mounts for word in ("--volume", mount))
    own = ("--network", "host", "--ipc", "host", "--workdir", image.folder)
    run = ("podman-hpc", "run", "--rm", *image.flags, *own)
    return Entry(prefix=(*run, *variables, *mounts, image.name))


def _shifter(image: Image) -> Entry:
    """Its centre makes its file systems visible by their own names, and refuses to bind them once more."""
    volumes = (f"--volume={bind}" for bind in image.binds)
    options = (f"--image={image.name}", *image.flags, f"--workdir={image.folder}", *volumes)
    return Entry(prefix=("shifter", *options))


def _sarus(image: Image) -> Entry:
    mounts = []
    for mount in image.mounts:
        source, target, *options = mount.split(":")
        read_only = ",readonly" if "ro" in options else ""
        mounts.append(f"--mount=type=bind,source={source},destination={target}{read_only}")
    return Entry(prefix=("sarus", "run", *image.flags, f"--workdir={image.folder}", *mounts, image.name))


def _pyxis(image: Image) -> Entry:
    """All variables enter, but the image's own values win, except for the names that are listed."""
    names = (name for name in image.variables if not name.endswith("*"))
    return Entry(
        options=(
            f"--container-image={image.name}",
            f"--container-mounts={','.join(image.mounts)}",
            f"--container-workdir={image.folder}",
            f"--container-env={','.join(names)}",
            *image.flags,
        )
    )


def _edf(image: Image) -> Entry:
    """CSCS's Container Engine: an environment definition file; ``flags`` are lines of its annotations.

    The image is another such file, or its name, or an image.
    """
    is_file = image.name.endswith(".toml") or not set("/:#") & set(image.name)
    key = "base_environment" if is_file else "image"
    mounts = " ".join(map(expanded_code, image.mounts))
    return Entry(
        prelude=(
            "{",
            f"""  printf '{key} = "%s"\\n' {expanded_code(image.name)}""",
            f"""  printf 'workdir = "%s"\\n' {expanded_code(image.folder)}""",
            "  echo 'mounts = ['",
            f"""  printf '  "%s",\\n' {mounts}""",
            "  echo ']'",
            *(["  echo '[annotations]'"] if image.flags else []),
            *(f"  echo {expanded_code(flag)}" for flag in image.flags),
            f"}} >{expanded_code(_DESCRIPTION)}",
        ),
        options=(f"--environment={_DESCRIPTION}",),
    )


def _uenv(image: Image) -> Entry:
    """No container: a file system with software is mounted, and the host's folders are where they are."""
    return Entry(options=(f"--uenv={image.name}", *image.flags))


# Runtime → what enters it, its words for GPUs where a site has none of its own, and the characters that no path which
# it is given may have.
RUNTIMES: dict[ContainerRuntime, tuple[Callable[[Image], Entry], tuple[str, ...], str]] = {
    "apptainer": (_apptainer, ("--nv",), ":,"),
    "singularity": (_singularity, ("--nv",), ":,"),
    "podman-hpc": (_podman_hpc, ("--gpu",), ":"),
    "shifter": (_shifter, ("--module=gpu",), ""),  # it is told where to start, and binds nothing of ours
    "sarus": (_sarus, (), ":,"),
    "pyxis": (_pyxis, (), ":,"),
    "edf": (_edf, (), ':"\\'),
    "uenv": (_uenv, (), ""),
}

# What ranks read, beside what the job sets.
_READ = (
    *(
        "RUN",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
    ),
    *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "RANKUP_*", "SLURM_*", "TORCH*", "NCCL_*", "FI_*"),
)


def enter(spec: JobSpec, site: Site, variables: tuple[str, ...]) -> Entry:
    """What takes the ranks of ``spec`` into its container; nothing without one. ``variables`` are the job's own.

    Raises ``container-needs-srun`` for a runtime that is an option of srun where something else starts the ranks, and
    ``unbindable-path``.
    """
    if not spec.container:
        return Entry()
    runtime = spec.container_runtime or site.containers.runtime
    enters, gpu_flags, apart = RUNTIMES[runtime]
    for path in (str(spec.folder), *(bind.replace(":", "") for bind in spec.binds)):
        if found := next((each for each in path if each in apart), ""):
            raise RankupError(
                "unbindable-path",
                f"{path} has a {found} in its name: {runtime} cannot be given it",
                hint="rename the folder, or submit from another one",
            )
    fabric = site.fabric_of(spec)
    flags: tuple[str, ...] = ()
    if runtime == site.containers.runtime:
        flags = site.containers.flags
        gpu_flags = gpu_flags if site.containers.gpu_flags is None else site.containers.gpu_flags
    image = Image(
        spec.container,
        str(spec.folder),
        ("$RUN", *(["$RANKUP_STAGE"] if spec.uses_local_disk else []), str(spec.folder)),
        (*fabric.binds, *spec.binds),
        (*flags, *(gpu_flags if spec.gpus_per_node else ())),
        tuple(dict.fromkeys((*_READ, *variables))),
        site.containers.runscript,
    )
    entry = enters(image)
    if entry.prelude:
        entry = replace(entry, prelude=("# The container, as srun reads it", *entry.prelude))
    if entry.options and not _by_srun(spec, site):
        raise RankupError(
            "container-needs-srun",
            f"containers of {runtime} are an option of srun, which does not start these ranks",
            hint="--launcher torchrun or srun in a job of SLURM, or another --container-runtime",
        )
    return _with_libraries(entry, fabric.libraries)


def _by_srun(spec: JobSpec, site: Site) -> bool:
    if site.family != "slurm" or spec.launcher == "mpirun":
        return False
    return spec.launcher != "torchrun" or choose(spec.fanout, site.family) == "srun"


def _with_libraries(entry: Entry, libraries: tuple[str, ...]) -> Entry:
    """A container replaces the host's LD_LIBRARY_PATH, so the first process in it puts the ``libraries`` before."""
    if not libraries:
        return entry
    path = f'export LD_LIBRARY_PATH={code(":".join(libraries))}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
    lines = shell.quote(["#!/bin/sh", path, 'exec "$@"'])
    write = f"printf '%s\\n' {lines} >{expanded_code(_INSIDE)}"
    prelude = (*entry.prelude, "# The first process in the container", write)
    return replace(entry, prelude=prelude, prefix=(*entry.prefix, "sh", _INSIDE))
