"""Advice before the queue: findings about a job that is well formed and may still go wrong."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from rankup.findings.engine import Source, collect
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.resolve.program import architecture, environment_version, imports_rankup
from rankup.resolve.resolved import Resolved

_OLDEST_PYTHON = (3, 10)
_NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/run")


def advise(job: Resolved, *, ignore: Collection[str] = ()) -> list[Finding]:
    """What is found about a job, most severe first, without the codes to ``ignore``."""
    return collect(ADVICE, job, ignore=ignore)


def _old_python(job: Resolved) -> Iterator[Finding]:
    """The site's modules, or the virtual environment, bring a Python that cannot import rankup."""
    spec, site = job.spec, job.site
    if spec.conda or spec.container or not imports_rankup(spec.command, spec.folder):
        return
    version = environment_version(Path(spec.venv)) if spec.venv else site.python if spec.modules else ""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers and numbers < _OLDEST_PYTHON:
        yield Finding(
            "python-too-old",
            Severity.ERROR,
            f"{spec.command[0]} imports rankup, and the job's Python is {version}",
            place=spec.venv or f"site {site.name}",
            why="rankup requires Python 3.10; scripts that do not import it run on any version",
            fix="--module of a newer Python, or --venv, --conda or --container with one",
        )


def _container_without_rankup(job: Resolved) -> Iterator[Finding]:
    spec = job.spec
    bound = any("rankup" in bind for bind in spec.binds) or "PYTHONPATH" in spec.env or spec.venv
    if spec.container and not bound and imports_rankup(spec.command, spec.folder):
        package = Path(__file__).parent.parent
        yield Finding(
            "container-without-rankup",
            Severity.WARNING,
            f"{spec.command[0]} imports rankup, which {Path(spec.container).name} may not contain",
            place="--container",
            why="what a job imports of rankup requires only the standard library and torch, so it can be bound in",
            fix=f"--bind {package}:/opt/rankup/rankup --env PYTHONPATH=/opt/rankup",
            confidence=Confidence.LIKELY,
        )


def _missing_venv(job: Resolved) -> Iterator[Finding]:
    if job.spec.venv and not job.spec.container:  # in a container it may be the image's
        yield from _missing("venv", job.spec.venv, "bin/activate")


def _missing_container(job: Resolved) -> Iterator[Finding]:
    if job.spec.container:
        yield from _missing("container", job.spec.container)


def _missing(key: str, text: str, *parts: str) -> Iterator[Finding]:
    """A path that does not exist here; one with a variable, and an address, are for the job to resolve."""
    path = Path(text, *parts)
    if "$" not in text and "://" not in text and not _exists(path):
        yield Finding(
            f"missing-{key}",
            Severity.ERROR,
            f"{path} does not exist on this machine",
            place=f"--{key}",
            why="the job would fail at its first line, unless the path exists on the compute nodes only",
            fix=f"create it or correct the path; --ignore missing-{key} if only the compute nodes have it",
        )


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
        yield Finding(
            "other-architecture",
            Severity.WARNING,
            f"this virtual environment is for {node.login_arch}, and the compute nodes are {node.arch}",
            place=spec.venv,
            why="it was created on a login node: its compiled packages do not load on the compute nodes",
            fix="create it in a job: rankup env create",
        )


def _node_local(job: Resolved) -> Iterator[Finding]:
    if job.site.scheduler == "local":
        return
    for what, path in (("the job's directory", job.spec.folder), ("--runs-root", job.spec.runs_root)):
        if any(path.is_relative_to(place) for place in _NODE_LOCAL):
            yield Finding(
                "node-local-path",
                Severity.WARNING,
                f"{what} is {path}, which is a different directory on each node",
                place=str(path),
                why="what is written there on one node is not seen on the others",
                fix="use a directory on the file system that all nodes share",
                confidence=Confidence.LIKELY,
            )


def _half_filled_nodes(job: Resolved) -> Iterator[Finding]:
    spec, site = job.spec, job.site
    if site.fill_node and spec.nodes > 1 and 0 < spec.gpus_per_node < site.node.gpus:
        yield Finding(
            "half-filled-nodes",
            Severity.WARNING,
            f"{spec.nodes} nodes with {spec.gpus_per_node} of {site.node.gpus} GPUs each",
            place="--gpus-per-node",
            why=f"{site.name} requires one node to be filled before a second is used; GPUs of one node also "
            "communicate faster, and the job waits less",
            fix=f"--gpus-per-node {site.node.gpus}, and fewer nodes",
        )


def _gpu_type_alone(job: Resolved) -> Iterator[Finding]:
    """A profile may name the type for all its jobs; somebody who names it for one job expects GPUs."""
    spec, origin = job.spec, job.origin
    if spec.gpu_type and not spec.gpus_per_node and not origin["gpu_type"].startswith("site "):
        yield Finding(
            "gpu-type-without-gpus",
            Severity.WARNING,
            f"--gpu-type {spec.gpu_type} has no effect: the job requests no GPUs",
            place=f"gpus_per_node: {origin['gpus_per_node']}",
            fix="--gpus-per-node G",
        )


def _few_cores(job: Resolved) -> Iterator[Finding]:
    spec, node = job.spec, job.site.node
    if spec.gpus_per_node and spec.cpus_per_task is None and node.cpus and not spec.exclusive:
        share = max(1, node.cpus // max(node.gpus, spec.nproc_per_node))
        yield Finding(
            "few-cores",
            Severity.NOTE,
            "the job does not say how many cores it needs: most schedulers give one to each process",
            place="--cpus-per-task",
            why="a GPU waits for data loaders that share one core",
            fix=f"--cpus-per-task {share}",
        )


def _no_time(job: Resolved) -> Iterator[Finding]:
    if job.spec.time is None and job.site.scheduler != "local":
        yield Finding(
            "no-time",
            Severity.NOTE,
            "the job has no time limit of its own: the queue's default applies, which may be minutes",
            place="--time",
            why="the job cannot know when to save; and a shorter time often starts sooner",
            fix="--time 4h",
        )


# Each source is called what its findings are called: `--ignore CODE` takes these names.
ADVICE: Mapping[str, Source[Resolved]] = {
    "python-too-old": _old_python,
    "container-without-rankup": _container_without_rankup,
    "missing-venv": _missing_venv,
    "missing-container": _missing_container,
    "other-architecture": _other_architecture,
    "node-local-path": _node_local,
    "half-filled-nodes": _half_filled_nodes,
    "gpu-type-without-gpus": _gpu_type_alone,
    "few-cores": _few_cores,
    "no-time": _no_time,
}
