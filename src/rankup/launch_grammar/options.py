"""The options of a command, as rows of a table.

A table is a text file. ``[srun salloc] getopt`` begins the options of these commands, and says how they read a command
line. Each row is one option, as ``--help`` writes it: ``-K, --kill-on-bad-exit [VALUE]``. After two blanks follow:

=================  ===========================================================================
``= MEANING``      what all who read command lines call it; without it, the first spelling without dashes
``since VERSION``  the first version that has it
``gone VERSION``   a version that has it no more
``by NAME``        who adds it: a plug-in, or one of several programs of the name
=================  ===========================================================================

The word of a value is its ``kind``: ``VALUE`` is any text; for numbers see ``numbers``.

The standard library reads it, because the stand-ins of a rehearsal run on any Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

_TABLES = Path(__file__).parent / "tables"
_SECTION = re.compile(r"^\[(?P<commands>[^]]+)\] (?P<syntax>.+)$", re.M)
_ROW = re.compile(
    r"(?P<spellings>-[^\s,]+(?:, -[^\s,]+)*)(?: (?P<values>\S+(?: \S+)*))?(?P<remarks>(?:  +\S+ \S+)*)"
)
_REMARK = re.compile(r"  +(\S+) (\S+)")


@dataclass(frozen=True)
class Option:
    """One option of a command."""

    spellings: tuple[str, ...]
    meaning: str
    kind: str = ""  # of its value: VALUE, COUNT, …
    values: int = 0  # words that must follow
    optional: bool = False  # it may have a value, but only attached: -K1, --kill-on-bad-exit=1
    joined: bool = False  # NAME=VALUE in one word is as good as two words
    last: bool = False  # what follows its value is not read as options
    since: str = ""
    gone: str = ""
    by: str = ""


@dataclass(frozen=True)
class Grammar:
    """The options of a command, and how it reads its command line.

    ``syntax``: ``getopt`` (getopt_long), ``argparse``, or ``dashes`` (MPI: names of any length after one dash or two).
    """

    command: str
    syntax: str
    options: tuple[Option, ...]
    alike: bool = False  # - and _ in names are the same
    exact: bool = False  # no beginnings of names

    @cached_property
    def by_spelling(self) -> dict[str, Option]:
        return {self._plain(spelling): option for option in self.options for spelling in option.spellings}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The long options, without dashes."""
        return tuple(spelling[2:] for spelling in self.by_spelling if spelling.startswith("--"))

    def find(self, spelling: str) -> Option | None:
        """The option that is spelt so, or whose name alone begins so, if the command takes beginnings."""
        option = self.by_spelling.get(self._plain(spelling))
        if option is None and spelling.startswith("--") and self.syntax != "dashes" and not self.exact:
            found = {self.by_spelling[f"--{name}"] for name in self.beginnings(spelling[2:])}
            option = found.pop() if len(found) == 1 else None
        return option

    def beginnings(self, name: str) -> list[str]:
        """The long options that begin with ``name``; itself alone if it is one."""
        name = self._plain(f"--{name}")[2:]
        if name in self.names:
            return [name]
        return [one for one in self.names if name and one.startswith(name)]

    def _plain(self, spelling: str) -> str:
        if self.syntax == "dashes":
            return "-" + spelling.lstrip("-")
        if self.alike and spelling.startswith("--"):
            return "--" + spelling[2:].replace("-", "_")
        return spelling


@cache
def grammar_of(command: str) -> Grammar:
    """The options of ``command``; none if no table has it."""
    options: list[Option] = []
    syntax, *traits = ["getopt"]
    for found_syntax, text in _sections().get(command, ()):
        syntax, *traits = found_syntax.split()
        options += [_option(line.strip()) for line in text.splitlines() if line.strip() and line[0] != "#"]
    return Grammar(command, syntax, tuple(options), "_" in traits, "exact" in traits)


def commands() -> list[str]:
    """All commands that a table has."""
    return sorted(_sections())


@cache
def _sections() -> dict[str, list[tuple[str, str]]]:
    """Command → (syntax, rows) of each section that names it."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(_TABLES.glob("*.txt")):
        _, *parts = _SECTION.split(path.read_text())
        for names, syntax, rows in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            for name in names.split():
                found.setdefault(name, []).append((syntax, rows))
    return found


def _option(row: str) -> Option:
    match = _ROW.fullmatch(row)
    if match is None:
        raise ValueError(f"not a row of a table of options: {row!r}")
    spellings = tuple(match["spellings"].split(", "))
    remarks = dict(_REMARK.findall(match["remarks"]))
    values = (match["values"] or "").split()
    last = values[-1:] == ["..."]
    name = next((one for one in spellings if one.startswith("--")), spellings[-1]).lstrip("-")
    joined = values == ["NAME[=]VALUE"]
    optional = values[:1] != [] and values[0].startswith("[")
    return Option(
        spellings,
        remarks.get("=", name),
        values[0].strip("[]") if values else "",
        0 if optional else 2 if joined else len(values) - last,
        optional,
        joined,
        last,
        remarks.get("since", ""),
        remarks.get("gone", ""),
        remarks.get("by", ""),
    )
