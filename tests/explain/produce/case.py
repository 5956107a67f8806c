"""A failure to produce: a program, the command that makes it fail, and what `rankup explain` has to say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import dedent

# What most programs begin with: a group of processes, and this rank in it.
GROUP = """\
import datetime, os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=float(os.environ.get("PATIENCE", 600))))
rank, world = dist.get_rank(), dist.get_world_size()
"""


def program(text: str, begin: str = GROUP) -> str:
    return begin + dedent(text)


@dataclass(frozen=True)
class Case:
    """``command`` is bash, run in a folder with ``files`` on a pretend host. ``logs`` are the files that are kept.

    ``rank``, ``signature`` and ``quote`` are what has to be named first: None and "" where the log does not tell.
    ``where`` is "host" (a host of its own on this machine), "batch" (an sbatch script in the laboratory: ``command``
    is its text), "limits" (the same with memory limits by cgroup v1) or "head" (a command on its head).
    """

    name: str
    command: str
    signature: str
    quote: str
    rank: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    logs: tuple[str, ...] = ("job.log",)
    where: str = "host"
    options: tuple[str, ...] = ()


def torchrun(name: str, text: str, signature: str, quote: str, rank: int | None, *, n: int = 4, env: str = "",
             options: str = "--standalone") -> Case:  # fmt: skip
    command = f"{env} torchrun {options} --nproc-per-node {n} train.py > job.log 2>&1"
    return Case(name, command.strip(), signature, quote, rank, {"train.py": program(text)})
