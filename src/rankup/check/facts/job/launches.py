"""Which commands start a training program, by which launcher, with which options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from rankup.check.facts.job.commands import Atom, Value, Variable
from rankup.check.facts.job.options import parse
from rankup.launch_grammar.launchers import COMMANDS, MODULES, launch_of

_IS_PYTHON = re.compile(r"(python|pypy)[\d.]*(t|w)?\Z|pythonw?\d?\.sif\Z")


@dataclass(frozen=True)
class LauncherLine:
    """A launcher's command line."""

    launcher: str  # python, torchrun, launch (torch.distributed.launch), accelerate, deepspeed, horovodrun, fabric, ray
    options: dict[str, Value] = field(default_factory=dict)
    words: dict[str, Value] = field(default_factory=dict)
    script: Value | None = None
    module: str = ""  # of python -m
    arguments: tuple[Value, ...] = ()
    inline: bool = False  # python -c, python - <<EOF: not a program of its own
    unknown: tuple[Value, ...] = ()  # options that the launcher does not have
    no_python: tuple[Value, ...] = ()  # torchrun --no_python COMMAND


def start_of(name: str, argv: Sequence[Value]) -> LauncherLine | None:
    """How ``argv`` starts a Python program; None if it does not."""
    if (launch := launch_of(COMMANDS, name, argv[1:])) is not None:
        return _launcher(*launch)
    if name in ("fabric", "lightning"):
        is_model = len(argv) > 2 and argv[2].known == "model"
        return _launcher("fabric", argv[3 if is_model else 2 :]) if _is(argv[1:], "run") else None
    if _IS_PYTHON.match(name) or (not name and _is_python_variable(argv)):
        return _python(argv[1:])
    return None


def _python(words: Sequence[Value]) -> LauncherLine | None:
    parsed = parse("python", words)
    module, script = parsed.options.get("m"), next(iter(parsed.rest), None)
    if module is not None:
        return _module(module.known or "?", parsed.rest)
    if "c" in parsed.options or (script is not None and script.known == "-"):
        return LauncherLine("python", inline=True)
    if script is None or parsed.options.keys() & {"version", "help"}:
        return None
    return LauncherLine("python", script=script, arguments=parsed.rest[1:])


def _module(name: str, words: tuple[Value, ...]) -> LauncherLine | None:
    if name in MODULES:
        launch = launch_of(MODULES, name, words)
        return _launcher(*launch) if launch is not None else None
    return LauncherLine("python", module=name, arguments=words)


def _launcher(launcher: str, words: Sequence[Value]) -> LauncherLine | None:
    parsed = parse(launcher, words)
    rest = parsed.rest
    line = LauncherLine(launcher, parsed.options, parsed.words, unknown=tuple(parsed.unknown))
    if launcher == "horovodrun":
        inner = start_of(_base(rest), rest) if rest else None
        if inner is None:
            return None
        return replace(line, script=inner.script, module=inner.module, arguments=inner.arguments)
    if "no_python" in parsed.options:
        return replace(line, arguments=rest[1:], no_python=rest)
    if not rest:
        return line
    if "module" in parsed.options:
        return replace(line, module=rest[0].known or "?", arguments=rest[1:])
    return replace(line, script=rest[0], arguments=rest[1:])


def _is(words: Sequence[Value], known: str) -> bool:
    return bool(words) and words[0].known == known


def _base(argv: Sequence[Value]) -> str:
    return (argv[0].known or "").rpartition("/")[2]


def _is_python_variable(argv: Sequence[Value]) -> bool:
    """``$PYTHON train.py`` where nobody knows what PYTHON is."""
    atoms = argv[0].atoms if argv else ()
    return (
        len(atoms) == 1
        and isinstance(atoms[0], Variable)
        and bool(re.search(r"PYTHON(_?(BIN|EXE|EXEC|CMD|3))?\Z", atoms[0].name.upper()))
    )


def path_of(script: Value, folder: str | None, here: frozenset[str]) -> str:
    """A file's path relative to the job script's folder; "" if not even its name is known.

    It begins with ``/`` if it is an absolute path, or what is known of the end of one. ``folder`` is the working
    directory (None: unknown, and then the script's folder is as good a guess as any); ``here`` are variables that hold
    the folder from which the job was submitted.
    """
    atoms = [atom for given in script.atoms for atom in _with_default(given) if getattr(atom, "text", "x")]
    base = folder or ""
    if atoms and isinstance(atoms[0], Variable) and atoms[0].name in here:
        atoms, base = atoms[1:], ""
        path = Value(tuple(atoms)).known
        path = path.lstrip("/") if path is not None else None
    else:
        path = Value(tuple(atoms)).known
    if path is None:  # /unknown/folders/train.py
        _, slash, end = Value(tuple(atoms)).tail.partition("/")
        return slash + end if end else ""
    if not path or path.startswith(("/", "~")):
        return path.removeprefix("~")
    parts: list[str] = []
    for part in PurePosixPath(base, path).parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def why_not_found(script: Value, path: str) -> tuple[str, str]:
    """What to call a program that is not at ``path``, which is its ``path_of``, and why it was not read."""
    known = Value(tuple(atom for given in script.atoms for atom in _with_default(given))).known
    # A number is not the name of a program, and of a folder that nobody knows path_of has the end alone.
    if not path or path.isdigit() or (known is None and path.startswith("/")):
        return script.text, "only the job knows its path"
    return PurePosixPath(path).name, f"not found at {known if known and known.startswith('~') else path}"


def _with_default(atom: Atom) -> tuple[Atom, ...]:
    """``${1:-train.py}`` is its default, since nobody knows better."""
    if isinstance(atom, Variable) and atom.operator in (":-", "-", ":=", "=") and atom.default is not None:
        return atom.default.atoms
    return (atom,)
