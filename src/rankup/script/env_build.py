"""A Python environment as plain bash: what builds it on a compute node, where rankup may not even be installed.

The script makes ``FOLDER/NAME-ARCHITECTURE``, by the architecture of the machine that it runs on, and all of it or
nothing: what a failure leaves is removed, and ``environment.json`` in it is written last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rankup.core.shell import quote
from rankup.errors import RankupError

FACTS = "environment.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CUDA = re.compile(r"auto|cpu|\d+\.\d+")


@dataclass(frozen=True)
class Environment:
    """What is asked for.

    ``torch`` are requirements as pip reads them, () for none; ``torch_index`` is where pip looks for them, "" for
    where it always looks; ``wheels`` is a folder of wheels, from which alone all is then installed. ``cuda`` is what
    torch has to be built for: a version such as "12.6", "cpu", or "auto" for whatever this node's driver can run.
    """

    folder: Path  # absolute, seen by all nodes
    name: str
    python: str = "python3"
    modules: tuple[str, ...] = ()
    torch: tuple[str, ...] = ("torch",)
    torch_index: str = ""
    wheels: Path | None = None  # absolute
    cuda: str = "auto"
    requirements: Path | None = None  # absolute

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise RankupError(
                "bad-environment-name",
                f"{self.name!r} cannot name an environment",
                context="--name",
                hint="letters, digits, '.', '_' and '-', beginning with a letter or a digit",
            )
        if not _CUDA.fullmatch(self.cuda):
            raise RankupError(
                "bad-cuda-version",
                f"{self.cuda!r} is not a CUDA version",
                context="--cuda",
                hint="auto, cpu, or a version such as 12.6",
            )
        if self.wheels is not None and not self.wheels.is_dir():
            raise RankupError(
                "wheels-not-found", f"there is no directory {str(self.wheels)!r}", context="--wheels"
            )
        if self.requirements is not None and not self.requirements.is_file():
            raise RankupError(
                "requirements-not-found",
                f"there is no requirements file {str(self.requirements)!r}",
                context="--requirements",
            )

    def path(self, arch: str) -> Path:
        """Where it lies for machines whose ``uname -m`` is ``arch``."""
        return self.folder / f"{self.name}-{arch}"


def render(environment: Environment) -> str:
    """The script. It ends with 0 when the environment is whole, else with another code and nothing of it left."""
    values = {
        "folder": str(environment.folder),
        "name": environment.name,
        "python": environment.python,
        "torch_index": environment.torch_index,
        "cuda": environment.cuda,
        "requirements": str(environment.requirements or ""),
        "wheels": str(environment.wheels or ""),
    }
    assignments = [f"{name}={quote([value])}" for name, value in values.items()]
    assignments.append(f"torch=({quote(environment.torch)})")
    modules = _MODULES.format(modules=quote(environment.modules)) if environment.modules else ""
    body = Path(__file__).with_name("parts").joinpath("env_build.sh").read_text()
    return "\n".join((_HEAD, *assignments, modules, body))


_HEAD = """\
#!/usr/bin/env bash
# Builds a Python environment for this machine's architecture. Plain bash: it needs no rankup.
# shellcheck disable=SC2016,SC2089,SC2090  # the values below are meant as they stand
set -eo pipefail
"""

_MODULES = """
# `module` is a function that login shells have, and a job's shell may not.
if ! type module >/dev/null 2>&1 && [ -r /etc/profile ]; then
  # shellcheck disable=SC1091
  . /etc/profile
fi
module load {modules}
"""
