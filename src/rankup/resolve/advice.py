"""What ``submit`` says before the queue: findings about a job that is well formed and may still go wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rankup.findings.finding import Confidence, Finding, Severity
from rankup.resolve.interpreter import architecture, environment_version
from rankup.resolve.resolved import Resolved
from rankup.resolve.script_imports import imports_rankup
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

_OLDEST_PYTHON = (3, 10)
_NODE_LOCAL = ("/tmp", "/var/tmp", "/dev/shm", "/run")


def advise(resolved: Resolved) -> list[Finding]:
    """The findings about a job, errors first."""
    spec, site = resolved.spec, resolved.site
    checks = (
        _old_python,
        _bare_container,
        _missing_environment,
        _other_architecture,
        _node_local,
        _half_nodes,
        _few_cores,
        _no_time,
    )
    return [finding for check in checks for finding in check(spec, site)]


def _old_python(spec: JobSpec, site: Site) -> Iterator[Finding]:
    """The site's modules, or the virtual environment, bring a Python that cannot import rankup."""
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
            why="rankup needs Python 3.10; scripts that do not import it run on any",
            fix="--module of a newer Python, or --venv, --conda or --container with one",
        )


def _bare_container(spec: JobSpec, site: Site) -> Iterator[Finding]:
    """A script that imports rankup, in an image that need not have it."""
    bound = any("rankup" in bind for bind in spec.binds) or "PYTHONPATH" in spec.env or spec.venv
    if spec.container and not bound and imports_rankup(spec.command, spec.folder):
        package = Path(__file__).parent.parent
        yield Finding(
            "container-without-rankup",
            Severity.WARNING,
            f"{spec.command[0]} imports rankup, which {Path(spec.container).name} may not have",
            place="--container",
            why="what a job imports of rankup needs the standard library and torch alone: it can be bound in",
            fix=f"--bind {package}:/opt/rankup/rankup --env PYTHONPATH=/opt/rankup",
            confidence=Confidence.LIKELY,
        )


def _missing_environment(spec: JobSpec, site: Site) -> Iterator[Finding]:
    """A path that is not there; in a container the virtual environment may be the image's."""
    wanted = {"venv": Path(spec.venv, "bin/activate"), "container": Path(spec.container)}
    for key, path in wanted.items():
        text = getattr(spec, key)
        if text and "$" not in text and "://" not in text and not path.exists():
            if key == "venv" and spec.container:
                continue
            yield Finding(
                f"missing-{key}",
                Severity.ERROR,
                f"there is no {path}",
                place=f"--{key}",
                why="the job would end at its first line",
                fix="make it first, or give another path",
                confidence=Confidence.LIKELY,  # a file system may be the compute nodes' own
            )


def _other_architecture(spec: JobSpec, site: Site) -> Iterator[Finding]:
    node = site.node
    if not (spec.venv and node.login_arch and node.arch) or spec.container or node.login_arch == node.arch:
        return
    if architecture(Path(spec.venv, "bin", "python")) == node.login_arch:
        yield Finding(
            "other-architecture",
            Severity.WARNING,
            f"this virtual environment is for {node.login_arch}, and the compute nodes are {node.arch}",
            place=spec.venv,
            why="it was made on a login node: its compiled packages do not load on the compute nodes",
            fix="make it in a job",
        )


def _node_local(spec: JobSpec, site: Site) -> Iterator[Finding]:
    if site.scheduler == "local":
        return
    for what, path in (("the directory of the job", spec.folder), ("--runs-root", spec.runs_root)):
        if any(path.is_relative_to(place) for place in _NODE_LOCAL):
            yield Finding(
                "node-local-path",
                Severity.WARNING,
                f"{what} is {path}, which each node has for itself",
                place=str(path),
                why="what is written on one node is not seen on the others, nor here",
                fix="a directory on the file system that all nodes share",
                confidence=Confidence.LIKELY,
            )


def _half_nodes(spec: JobSpec, site: Site) -> Iterator[Finding]:
    if site.fill_node and spec.nodes > 1 and 0 < spec.gpus_per_node < site.node.gpus:
        yield Finding(
            "half-filled-nodes",
            Severity.WARNING,
            f"{spec.nodes} nodes with {spec.gpus_per_node} of {site.node.gpus} GPUs each",
            place="--gpus-per-node",
            why=f"{site.name} wants a node filled first; GPUs of one node also talk faster, and the wait is shorter",
            fix=f"--gpus-per-node {site.node.gpus}, and fewer nodes",
        )


def _few_cores(spec: JobSpec, site: Site) -> Iterator[Finding]:
    if spec.gpus_per_node and spec.cpus_per_task is None and site.node.cpus and not spec.exclusive:
        fair = max(1, site.node.cpus // max(site.node.gpus, spec.nproc_per_node))
        yield Finding(
            "few-cores",
            Severity.NOTE,
            "no cores are asked for: most schedulers give one to each process",
            place="--cpus-per-task",
            why="a GPU waits for data loaders that share one core",
            fix=f"--cpus-per-task {fair}",
        )


def _no_time(spec: JobSpec, site: Site) -> Iterator[Finding]:
    if spec.time is None and site.scheduler != "local":
        yield Finding(
            "no-time",
            Severity.NOTE,
            "no time is asked for: the queue's default holds, which may be minutes",
            place="--time",
            why="the job cannot know when to save; and a shorter time often starts sooner",
            fix="--time 4h",
        )
