"""Advice before the queue: findings about a job that is well formed and may still go wrong."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import date
from pathlib import Path

from rankup.findings.engine import Source, collect
from rankup.findings.finding import Finding
from rankup.resolve.findings import finding
from rankup.resolve.program import architecture, environment_version, imports_rankup
from rankup.resolve.resolved import Resolved
from rankup.spec.validation import launch_options
from rankup.world import ACCELERATORS

_OLDEST_PYTHON = (3, 10)
_SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
_USUAL_CORES = 8  # for each GPU, where a profile does not say how many cores a node has
_NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/run")


def advise(job: Resolved, *, ignore: Collection[str] = ()) -> list[Finding]:
    """What is found about a job, most severe first, without the codes to ``ignore``."""
    return collect(ADVICE, job, ignore=ignore)


def _old_python(job: Resolved) -> Iterator[Finding]:
    """The site's modules, or the virtual environment, bring a Python that cannot import rankup."""
    spec, site = job.spec, job.site
    if spec.conda or spec.pixi or spec.container or not imports_rankup(spec.command, spec.folder):
        return
    version = environment_version(Path(spec.venv)) if spec.venv else site.python if spec.modules else ""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers and numbers < _OLDEST_PYTHON:
        yield finding("python-too-old", job, place=spec.venv, version=version)


def _python_without_torch(job: Resolved) -> Iterator[Finding]:
    """The site's modules bring a Python, and nothing that is known brings torch."""
    spec = job.spec
    if spec.venv or spec.conda or spec.pixi or spec.container or spec.pre or "PYTHONPATH" in spec.env:
        return
    modules = " ".join(spec.modules) if job.site.python and job.origin["python"] == "default" else ""
    if modules and spec.is_python and "torch" not in modules.lower():
        yield finding("python-without-torch", job, modules=modules)


def _unknown_device(job: Resolved) -> Iterator[Finding]:
    """GPUs that rankup's library does not see: it would train on the CPUs."""
    spec, node = job.spec, job.site.node
    if spec.gpus_per_node and node.device not in ACCELERATORS and imports_rankup(spec.command, spec.folder):
        yield finding("device-without-rankup", job)


def _container_without_rankup(job: Resolved) -> Iterator[Finding]:
    spec = job.spec
    bound = any("rankup" in bind for bind in spec.binds) or "PYTHONPATH" in spec.env or spec.venv
    if spec.container and not bound and imports_rankup(spec.command, spec.folder):
        package = Path(__file__).parent.parent
        yield finding("container-without-rankup", job, image=Path(spec.container).name, package=package)


def _environment_without_rankup(job: Resolved) -> Iterator[Finding]:
    """An environment of another machine, or one that is known by its name alone."""
    spec = job.spec
    if spec.container or "PYTHONPATH" in spec.env or not imports_rankup(spec.command, spec.folder):
        return
    if environment := spec.conda or spec.pixi:
        where = "--conda" if spec.conda else "--pixi"
        yield finding("environment-without-rankup", job, place=where, environment=environment)


def _missing_venv(job: Resolved) -> Iterator[Finding]:
    if job.spec.venv and not job.spec.container:  # in a container it may be the image's
        yield from _missing(job, "venv", job.spec.venv, "bin/activate")


def _missing_container(job: Resolved) -> Iterator[Finding]:
    if Path(job.spec.container).is_absolute():
        yield from _missing(job, "container", job.spec.container)


def _missing(job: Resolved, key: str, text: str, *parts: str) -> Iterator[Finding]:
    """A path that does not exist here; one with a variable, and an address, are for the job to resolve. A path of the
    site's profile is judged where its file system is: not on a laptop."""
    path = Path(text, *parts)
    if job.origin[key].startswith("site ") and not _exists(Path(*path.parts[:2])):
        return
    if "$" not in text and "://" not in text and not _exists(path):
        yield finding(f"missing-{key}", job, path=path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False


def _other_architecture(job: Resolved) -> Iterator[Finding]:
    spec, node = job.spec, job.site.node
    if not (spec.venv and node.login_arch and node.arch) or spec.container or node.login_arch == node.arch:
        return
    if architecture(Path(spec.venv, "bin", "python")) == node.login_arch:
        yield finding("other-architecture", job)


def _node_local(job: Resolved) -> Iterator[Finding]:
    if job.site.scheduler == "local":
        return
    folder, runs = job.spec.folder, job.spec.runs_root
    places = {"the job's directory": folder}
    if not runs.is_relative_to(folder):  # what is said of the folder holds for all in it
        places["--runs-root"] = runs
    for what, path in places.items():
        if any(path.is_relative_to(place) for place in _NODE_LOCAL):
            yield finding("node-local-path", job, place=str(path), what=what)


def _half_filled_nodes(job: Resolved) -> Iterator[Finding]:
    spec, site = job.spec, job.site
    if site.fill_node and spec.nodes > 1 and 0 < spec.gpus_per_node < site.node.gpus:
        yield finding("half-filled-nodes", job)


def _gpu_type_alone(job: Resolved) -> Iterator[Finding]:
    """A profile may name the type for all its jobs; somebody who names it for one job expects GPUs."""
    spec, origin = job.spec, job.origin
    if spec.gpu_type and not spec.gpus_per_node and not origin["gpu_type"].startswith("site "):
        yield finding("gpu-type-without-gpus", job)


def _few_cores(job: Resolved) -> Iterator[Finding]:
    spec, node = job.spec, job.site.node
    if spec.gpus_per_node and spec.cpus_per_task is None and not spec.exclusive:
        share = max(1, node.cpus // max(node.gpus, spec.nproc_per_node)) if node.cpus else _USUAL_CORES
        yield finding("few-cores", job, share=share)


def option_after_script(job: Resolved) -> Iterator[Finding]:
    """An option of rankup that comes after the script, so that the script gets it. If the script's text contains the
    name of the option, it is the script's own."""
    first, *arguments = job.spec.command
    options = {word.partition("=")[0] for word in arguments} & launch_options()
    try:
        text = (job.spec.folder / first).read_text(errors="replace").replace("_", "-") if options else ""
    except OSError:
        return
    for option in sorted(options):
        if option.lstrip("-") not in text:
            yield finding("option-after-script", job, option=option)


def _literal_variable(job: Resolved) -> Iterator[Finding]:
    """A variable in an argument: the script gets its name, since each argument is passed on as it is."""
    interpreter, *arguments = job.spec.command
    if Path(interpreter).name in _SHELLS:
        return
    for argument in arguments:
        if found := re.search(r"\$\{?([A-Z][A-Z0-9_]+)", argument):
            yield finding("literal-variable", job, argument=argument, variable=found[1])


def _old_profile(job: Resolved) -> Iterator[Finding]:
    """A profile whose name has a year, such as ``cyclone@2023``, was chosen for it."""
    oldest = job.site.source.oldest
    today = date.today()
    if oldest and not re.search(r"@\d{4}$", job.site.name) and oldest < f"{today.year - 1}{today:-%m-%d}":
        yield finding("old-profile", job, oldest=oldest)


def _untried_profile(job: Resolved) -> Iterator[Finding]:
    if job.site.untried:
        yield finding("untried-profile", job)


def _no_time(job: Resolved) -> Iterator[Finding]:
    if job.spec.time is None and job.site.scheduler != "local":
        yield finding("no-time", job)


# Each source is called what its findings are called: `--ignore CODE` takes these names.
ADVICE: Mapping[str, Source[Resolved]] = {
    "python-too-old": _old_python,
    "python-without-torch": _python_without_torch,
    "device-without-rankup": _unknown_device,
    "container-without-rankup": _container_without_rankup,
    "environment-without-rankup": _environment_without_rankup,
    "missing-venv": _missing_venv,
    "missing-container": _missing_container,
    "other-architecture": _other_architecture,
    "node-local-path": _node_local,
    "half-filled-nodes": _half_filled_nodes,
    "gpu-type-without-gpus": _gpu_type_alone,
    "few-cores": _few_cores,
    "no-time": _no_time,
    "old-profile": _old_profile,
    "untried-profile": _untried_profile,
    "option-after-script": option_after_script,
    "literal-variable": _literal_variable,
}
