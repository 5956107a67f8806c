"""What a shell has to know of the commands: their options, and what kind of value follows which."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rankup.cli.app import COMMANDS, load_command
from rankup.sites.lookup import BUILT_IN
from rankup.workloads import WORKLOADS

# What follows an option or a command: nothing that is known, words to choose from, or a shell function's list.
NOTHING, FILE, FOLDER, SITE, RUN = "", "@files", "@folders", "@sites", "@runs"


@dataclass(frozen=True)
class Option:
    """``names`` as typed, ``help`` in a line; ``value`` is None for a switch, else one of the above or words."""

    names: tuple[str, ...]
    help: str
    value: str | None


@dataclass(frozen=True)
class Command:
    """``path`` as typed after ``rankup``. ``script``: everything after the first argument belongs to a script."""

    path: str
    help: str
    options: tuple[Option, ...]
    argument: str
    script: bool
    children: tuple[tuple[str, str], ...] = ()


Writer = Callable[[list[Command]], str]


def declared() -> Iterator[Command]:
    """All commands, groups before their own commands."""
    for group in COMMANDS.values():
        for name, (_, summary) in group.items():
            command = load_command(name)
            yield _read(name, summary, command)
            for sub, child in getattr(command, "commands", {}).items():
                yield _read(f"{name} {sub}", child.help or "", child)


def _read(path: str, summary: str, command: Any) -> Command:
    options = []
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            switch = getattr(param, "is_flag", False)
            names = (*param.opts, *param.secondary_opts)
            options.append(Option(names, _line(param.help), None if switch else _value(param)))
    options.append(Option(("-h", "--help"), "show the page of help", None))
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    children = tuple((name, _line(sub.help)) for name, sub in getattr(command, "commands", {}).items())
    return Command(
        path,
        _line(summary),
        tuple(options),
        _value(arguments[0]) if arguments else NOTHING,
        not command.context_settings.get("allow_interspersed_args", True),
        children,
    )


def _value(param: Any) -> str:
    """What can be said of a parameter's value: from its choices, its name and its metavar."""
    metavar = param.metavar or ""
    words = [
        word
        for word in metavar.strip("[]").split("|")
        if re.fullmatch(r"[a-z0-9_.-]*[a-z][a-z0-9_.-]*", word)
    ]
    if words and "." not in metavar:
        return " ".join(words)
    if param.name == "site" or "SITE" in metavar:
        return SITE
    if "RUN" in metavar.split("|")[0] and "." not in metavar:
        return RUN
    if param.name == "workload":
        return " ".join(WORKLOADS)
    if "DIR" in metavar:
        return FOLDER
    return FILE if param.param_type_name == "argument" or "FILE" in metavar else NOTHING


def _line(text: str | None) -> str:
    """The first sentence, on one line."""
    return " ".join((text or "").split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def builtin_sites() -> str:
    return " ".join(sorted(path.stem for path in BUILT_IN.glob("*.toml")))


def quoted(text: str) -> str:
    """In single quotes, for all three shells."""
    return "'" + text.replace("'", "’") + "'"
