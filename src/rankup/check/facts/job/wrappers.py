"""Commands that start another command on the same node: ``time``, ``env``, containers, ``bash -c``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rankup.check.facts.job.commands import Value
from rankup.check.facts.job.options import parse

_PLAIN = frozenset(
    {
        "time", "nohup", "exec", "command", "builtin", "nice", "ionice", "stdbuf", "setsid", "unbuffer", "numactl",
        "strace", "catchsegv", "sudo", "xargs",
    }
)  # fmt: skip
#: Command → the subcommand that must follow, or none.
_PREFIXES = {
    "nsys": "profile", "ncu": "", "conda": "run", "mamba": "run", "micromamba": "run", "poetry": "run",
    "pipenv": "run", "pixi": "run", "uv": "run", "pdm": "run", "rye": "run", "hatch": "run",
}  # fmt: skip
_CONTAINERS = {
    "apptainer": ("exec", "run"),
    "singularity": ("exec", "run"),
    "docker": ("run", "exec"),
    "podman": ("run", "exec"),
    "podman-hpc": ("run", "exec"),
    "nvidia-docker": ("run", "exec"),
    "enroot": ("start", "exec"),
    "shifter": (),
    "charliecloud": (),
    "ch-run": (),
    "sarus": ("run",),
    "udocker": ("run",),
}
_SHELLS = {"bash", "sh", "zsh", "dash", "ksh", "srun_bash"}
_NUMBER = re.compile(r"\d+(\.\d+)?[smhd]?")


@dataclass(frozen=True)
class Inner:
    """What a wrapper starts: a command's words, or a text that a shell reads."""

    argv: tuple[Value, ...] = ()
    text: Value | None = None
    script: Value | None = None  # a file that a shell runs
    environment: tuple[tuple[str, Value], ...] = ()
    container: str = ""


def unwrap(name: str, argv: tuple[Value, ...]) -> Inner | None:
    """What the command ``argv``, whose name is ``name``, starts on the same node, if it is one that does."""
    if name in _PLAIN:
        rest = parse(name, argv[1:]).rest
        if name == "numactl" and not rest:
            return None
        return Inner(rest) if rest else None
    if name == "env":
        return _env(argv[1:])
    if name in ("timeout", "chrt", "taskset"):
        parsed = parse(name, argv[1:])
        rest = parsed.rest if "cpu-list" in parsed.options else parsed.rest[1:]
        return Inner(rest) if rest else None
    if name in _PREFIXES:
        subcommand, rest = _PREFIXES[name], argv[1:]
        if subcommand:
            if not rest or rest[0].known != subcommand:
                return None
            rest = rest[1:]
        inner = parse(name, rest).rest
        return Inner(inner) if inner else None
    if name in _CONTAINERS:
        return _container(name, argv[1:])
    if name in _SHELLS:
        return _shell(argv[1:])
    return None


def _env(words: Sequence[Value]) -> Inner | None:
    rest = list(parse("env", words).rest)
    environment = []
    while rest and re.match(r"\w+=", rest[0].head):
        name = rest[0].head.partition("=")[0]
        environment.append((name, rest.pop(0).after(len(name) + 1)))
    return Inner(tuple(rest), environment=tuple(environment)) if rest else None


def _container(name: str, words: Sequence[Value]) -> Inner | None:
    subcommands = _CONTAINERS[name]
    words = list(words)
    while words and subcommands and words[0].known not in subcommands:
        if not words[0].head.startswith("-"):
            return None
        words.pop(0)
    if subcommands:
        words = words[1:]
    rest = parse(name, words).rest
    if name != "shifter" and len(rest) > 1:  # an image alone has a command of its own
        rest = rest[1:]
        if rest[0].known == "--":
            rest = rest[1:]
    return Inner(tuple(rest), container=name) if rest else None


def _shell(words: Sequence[Value]) -> Inner | None:
    index = 0
    while index < len(words):
        known = words[index].known
        head = words[index].head
        if head.startswith("-") and not head.startswith("--") and known is not None and "c" in known[1:]:
            rest = words[index + 1 :]
            return Inner(text=rest[0], argv=tuple(rest[1:])) if rest else None
        if known in ("-o", "-O", "--rcfile", "--init-file"):
            index += 2
            continue
        if not head.startswith(("-", "+")):
            return Inner(script=words[index], argv=tuple(words[index + 1 :]))
        index += 1
    return None
