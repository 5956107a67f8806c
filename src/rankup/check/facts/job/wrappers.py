"""Commands that start another command on the same node: ``time``, ``env``, containers, ``bash -c``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rankup.check.facts.job.commands import Value
from rankup.check.facts.job.options import grammar, parse

_PLAIN = {
    "time": "-f -o --format --output",
    "nohup": "",
    "exec": "-a",
    "command": "",
    "builtin": "",
    "nice": "-n --adjustment",
    "ionice": "-c -n -p",
    "stdbuf": "-i -o -e",
    "setsid": "",
    "unbuffer": "",
    "numactl": "-N -m -C -i -p --cpunodebind --membind --physcpubind --interleave",
    "strace": "-e -o",
    "catchsegv": "",
    "sudo": "-u -g",
    "xargs": "-n -P -I -L",
}
_PREFIXES = {  # name → (subcommands, options with a value)
    "nsys": (("profile",), "-o -t -s -w -f -x -c --output --trace --force-overwrite"),
    "ncu": ((), "-o -k --set"),
    "conda": (("run",), "-n -p --name --prefix"),
    "mamba": (("run",), "-n -p --name --prefix"),
    "micromamba": (("run",), "-n -p --name --prefix"),
    "poetry": (("run",), ""),
    "pipenv": (("run",), ""),
    "pixi": (("run",), "-e --environment --manifest-path"),
    "uv": (("run",), "-p --python --with --project --extra --group --directory --env-file"),
    "pdm": (("run",), ""),
    "rye": (("run",), ""),
    "hatch": (("run",), ""),
}
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
_CONTAINER_OPTIONS = (
    "-B --bind -H --home -W --workdir --pwd --cwd --env --env-file --overlay -o --mount --network "
    "--security --scratch -S --add-caps --drop-caps --apply-cgroups --app --dns --hostname --fusemount "
    "--docker-username -v --volume -e --name --gpus --shm-size --ipc --net --pid --uts --user -u -w "
    "--ulimit --device --cap-add --cpus --memory -m -p --publish --entrypoint --label -l --runtime "
    "--image -V --module --rc --conf -c --set-env"
)
_GRAMMARS = {name: grammar(options, {}) for name, options in _PLAIN.items()}
_PREFIX_GRAMMARS = {name: grammar(options, {}) for name, (_, options) in _PREFIXES.items()}
_CONTAINER = grammar(_CONTAINER_OPTIONS, {})
_SHIFTER = grammar(_CONTAINER_OPTIONS.replace("-m ", ""), {})
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
    if name in _GRAMMARS:
        rest = parse(argv[1:], _GRAMMARS[name]).rest
        if name == "numactl" and not rest:
            return None
        return Inner(rest) if rest else None
    if name == "env":
        return _env(argv[1:])
    if name in ("timeout", "chrt", "taskset"):
        rest = parse(argv[1:], grammar("-k -s --kill-after --signal -c --cpu-list", {})).rest
        if name != "taskset" or not any(word.known == "-c" for word in argv[1:3]):
            rest = rest[1:]
        return Inner(rest) if rest else None
    if name in _PREFIXES:
        subcommands, _ = _PREFIXES[name]
        rest = argv[1:]
        if subcommands:
            if not rest or rest[0].known not in subcommands:
                return None
            rest = rest[1:]
        inner = parse(rest, _PREFIX_GRAMMARS[name]).rest
        return Inner(inner) if inner else None
    if name in _CONTAINERS:
        return _container(name, argv[1:])
    if name in _SHELLS:
        return _shell(argv[1:])
    return None


def _env(words: Sequence[Value]) -> Inner | None:
    rest = list(parse(words, grammar("-u -C --unset --chdir -S", {})).rest)
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
    if name == "shifter":
        rest = parse(words, _SHIFTER).rest
    else:
        rest = parse(words, _CONTAINER).rest[1:]  # the image
        if rest and rest[0].known == "--":
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
