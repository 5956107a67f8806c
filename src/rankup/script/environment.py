"""The part of a job's script that sets up its environment: folder, modules, venv, conda or pixi, variables, secrets.

The lines of a job or of its site's profile stay as they are given, without indentation: they may hold a here-document.
"""

from __future__ import annotations

from rankup.core.choices import LOST, STOP
from rankup.launchers.base import code, expanded_code, path_code
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec
from rankup.spec.variables import variables as ours

# torchrun puts this before each line of a rank; the rank is the global one.
PREFIX = "'[rank ${rank}] '"


def environment(spec: JobSpec, site: Site) -> list[str]:
    """Bash; every line that can fail ends the job with a clear message if it does."""
    ours = [
        f"cd {path_code(str(spec.folder))} || finish failed 1",
        *(_MODULE_COMMAND if spec.module_purge or loaded_modules(spec, site) else []),
        *_own(spec, site, "pre_modules", ", before the modules"),
        *_modules(spec, site),
        *(["stage_in # RANKUP_STAGE"] if spec.uses_local_disk else []),
        *_venv(spec),
        *_conda(spec),
        *_pixi(spec),
        *_paths(site),
        *_exports(spec, site),
        *_threads(spec, site),
        *_secrets(spec),
        *_own(spec, site, "pre", ""),
    ]
    return [line if isinstance(line, _Own) else f"  {line}" for line in ours]


_MODULE_COMMAND = (
    "# shellcheck disable=SC1090",
    'for init in $(module_inits); do type module >/dev/null 2>&1 || . "$init"; done',
)


class _Own(str):
    """A line of the user's, or of the site's profile."""

    __slots__ = ()


def _own(spec: JobSpec, site: Site, key: str, when: str) -> list[str]:
    """The lines of ``key``, and above them whose they are: a job has its own ones in place of the profile's."""
    lines = list(getattr(spec, key))
    of_profile = [table.get(key) for table in (site.defaults, *site.when.values())]
    whose = f"From the profile {site.name}" if lines in of_profile else "Yours"
    return [f"# {whose}{when}:", *map(_Own, lines)] if lines else []


def variables(spec: JobSpec, site: Site) -> dict[str, str]:
    """What the ranks find in their environment; the job's words win over the site's, and both over ours."""
    interface = dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), site.node.interface)
    # Nobody watches a job: it ends in its first minutes, and not with other values after a requeue.
    lost = {LOST.variable: spec.lost or STOP} if spec.is_python else {}
    fabric = site.fabric_of(spec).env
    return {
        **ours(spec, gpus=spec.gpus_per_node, interface=interface),
        **lost,
        **site.env,
        **fabric,
        **spec.env,
    }


def _exports(spec: JobSpec, site: Site) -> list[str]:
    """The shell fills in a ``$NAME`` at the beginning of a user's value, and each in a site's."""
    return [
        f"export {name}={path_code(value) if name in spec.env else expanded_code(value)}"
        for name, value in variables(spec, site).items()
    ]


def _threads(spec: JobSpec, site: Site) -> list[str]:
    """OMP_NUM_THREADS where nobody has said it: a process's share of the cores that the job has on its node."""
    if "OMP_NUM_THREADS" in variables(spec, site):
        return []
    there = "env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc"
    cores = {"slurm": f"${{SLURM_CPUS_ON_NODE:-$({there})}}", "pbs": f"${{NCPUS:-$({there})}}"}
    each = f"cores={cores.get(site.family, f'$({there})')}"
    share = f"$((cores > {spec.nproc_per_node} ? cores / {spec.nproc_per_node} : 1))"
    if site.family == "pbs":  # which sets it to all cores, whatever the number of processes
        return [each, f"export OMP_NUM_THREADS={share}"]
    return [each, f"export OMP_NUM_THREADS=${{OMP_NUM_THREADS:-{share}}} # torchrun would say 1"]


def _modules(spec: JobSpec, site: Site) -> list[str]:
    modules = loaded_modules(spec, site)
    purge = ["module purge"] if spec.module_purge else []
    load = [f"module load {' '.join(map(code, modules))} || finish failed 1"] if modules else []
    return [*purge, *load]


def loaded_modules(spec: JobSpec, site: Site) -> tuple[str, ...]:
    """The job's modules, and what they lack of the site's fabric and MPI, if the job needs these."""
    mpi = site.mpi.module if spec.launcher == "mpirun" or spec.fanout == "mpiexec" else ""
    there = {module.partition("/")[0] for module in spec.modules}
    needed = (*site.fabric_of(spec).modules, *([mpi] if mpi else []))
    return (*spec.modules, *(module for module in needed if module.partition("/")[0] not in there))


def _venv(spec: JobSpec) -> list[str]:
    if not spec.venv or spec.container:  # there it is the command that says which Python
        return []
    return ["# shellcheck disable=SC1091", f". {path_code(spec.venv)}/bin/activate || finish failed 1"]


def _conda(spec: JobSpec) -> list[str]:
    if not spec.conda:
        return []
    return [
        "# `conda activate` is a function of the shell, which batch shells do not have.",
        "# shellcheck disable=SC1091",
        '. "$(conda info --base)/etc/profile.d/conda.sh" || finish failed 1',
        f"conda activate {path_code(spec.conda)} || finish failed 1",
    ]


def _pixi(spec: JobSpec) -> list[str]:
    if not spec.pixi:
        return []
    # As the lock file says, and as it is installed: compute nodes have no internet.
    hook = f"pixi shell-hook --shell bash --frozen --no-install --manifest-path {path_code(spec.pixi)}"
    return [f"hook=$({hook}) || finish failed 1", 'eval "$hook"']


def _paths(site: Site) -> list[str]:
    return [
        f"export {name}={':'.join(map(path_code, folders))}${{{name}:+:${name}}}"
        for name, folders in site.paths.items()
    ]


def _secrets(spec: JobSpec) -> list[str]:
    if not spec.secrets:
        return []
    return [
        f"# {', '.join(spec.secrets)}: from a file that only its owner can read: qstat and scontrol show scripts.",
        "# shellcheck disable=SC1091",
        '. "$BASE/secrets.env" || finish failed 1',
    ]
