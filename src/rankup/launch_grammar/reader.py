"""A command line → its options, their values, and the program with its arguments: the one reader for all commands.

A word may be known in part only (a shell's ``--nodes=$N``), so the reader is generic: a ``Word`` knows the text that it
begins with. ``Text`` is a word that is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from rankup.launch_grammar.options import Grammar, Option, grammar_of

_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class Word(Protocol):
    @property
    def head(self) -> str:
        """The known text that it begins with."""

    @property
    def known(self) -> str | None:
        """Its text, if all of it is known."""

    def after(self: W, count: int) -> W:
        """What follows the first ``count`` characters, which are known."""


W = TypeVar("W", bound=Word)


class Text(str):
    """A word whose text is known."""

    __slots__ = ()

    @property
    def head(self) -> str:
        return self

    @property
    def known(self) -> str:
        return self

    def after(self, count: int) -> Text:
        return Text(self[count:])


@dataclass(frozen=True)
class Given(Generic[W]):
    """An option of a command line."""

    option: Option
    spelling: str  # as it is written
    word: W  # in which it stands
    values: tuple[W, ...]  # an option without a value has an empty one

    @property
    def value(self) -> W:
        return self.values[-1]


@dataclass
class CommandLine(Generic[W]):
    """``problem`` is what the command itself would say first of a line that it refuses."""

    given: list[Given[W]] = field(default_factory=list)
    rest: tuple[W, ...] = ()  # the program with its arguments
    unknown: list[W] = field(default_factory=list)
    problem: str = ""

    @property
    def options(self) -> dict[str, W]:
        """Meaning → value; the last of equal options wins."""
        return {one.option.meaning: one.value for one in self.given}

    @property
    def words(self) -> dict[str, W]:
        """Meaning → the word in which the option stands."""
        return {one.option.meaning: one.word for one in self.given}

    def refuse(self, problem: str) -> None:
        self.problem = self.problem or problem


def read_text(command: str, words: Iterable[str]) -> CommandLine[Text]:
    """The words after ``command``."""
    return read(grammar_of(command), [Text(word) for word in words])


def read(
    grammar: Grammar, words: Sequence[W], skips: Callable[[W], bool] = lambda word: False
) -> CommandLine[W]:
    """The words after a command's name. ``skips``: words that are no options, and still do not end them."""
    line: CommandLine[W] = CommandLine()
    index = 0
    while index < len(words):
        word = words[index]
        if not word.head.startswith("-") or word.known == "-":
            if not skips(word):
                break
            index += 1
            continue
        index += 1
        if word.known == "--":
            break
        before = len(line.given)
        index += _option(grammar, word, words[index:], line)
        if any(one.option.last for one in line.given[before:]):
            break
    line.rest = tuple(words[index:])
    return line


def _option(grammar: Grammar, word: W, following: Sequence[W], line: CommandLine[W]) -> int:
    """Reads one word of options; returns how many of the following words are values."""
    spelling, equals, _ = word.head.partition("=")
    whole = equals or word.known is not None or len(spelling) == 2
    option = grammar.find(spelling) if whole else None  # --nodes$X may be any option
    if option is None:
        if grammar.syntax != "dashes" and not spelling.startswith("--"):
            return _letters(grammar, word, following, line)
        line.unknown.append(word)
        if len(several := grammar.beginnings(spelling.lstrip("-"))) > 1 and spelling.startswith("--"):
            names = " ".join(f"'--{name}'" for name in several)
            line.refuse(f"option '{spelling}' is ambiguous; possibilities: {names}")
        return 0
    if equals and (grammar.syntax == "dashes" or spelling.startswith("--")):
        if not option.values and not option.optional:
            line.refuse(f"option '{spelling}' doesn't allow an argument")
        line.given.append(Given(option, spelling, word, (word.after(len(spelling) + 1),)))
        return 0
    if len(spelling) == 2 and word.known != spelling:
        return _letters(grammar, word, following, line)
    return _with_values(grammar, option, spelling, word, following, line)


def _letters(grammar: Grammar, word: W, following: Sequence[W], line: CommandLine[W]) -> int:
    """``-lN2``: flags, then perhaps an option with its value, attached or in the next word."""
    for place, letter in enumerate(word.head[1:], 2):
        option = grammar.find(f"-{letter}")
        if option is None:
            line.unknown.append(word)
            line.refuse(f"invalid option -- '{letter}'")
            return 0
        attached = word.after(place)
        if option.optional or (option.values and attached.known != ""):
            line.given.append(Given(option, f"-{letter}", word, (attached,)))
            return 0
        if option.values:
            return _with_values(grammar, option, f"-{letter}", word, following, line)
        line.given.append(Given(option, f"-{letter}", word, (word.after(len(word.head)),)))
    return 0


def _with_values(
    grammar: Grammar, option: Option, spelling: str, word: W, following: Sequence[W], line: CommandLine[W]
) -> int:
    wanted = option.values
    if option.joined and following and "=" in following[0].head:
        wanted = 1
    values = tuple(following[:wanted])
    if len(values) < wanted or (grammar.syntax == "argparse" and any(map(_looks_like_option, values))):
        values = ()
        line.refuse(
            f"option requires an argument -- '{spelling[1:]}'"
            if len(spelling) == 2
            else f"option '{spelling}' requires an argument"
        )
    line.given.append(Given(option, spelling, word, values or (word.after(len(word.head)),)))
    return len(values)


def _looks_like_option(word: Word) -> bool:
    """argparse takes such a word for an option, never for a value."""
    head = word.head
    return head.startswith("-") and head != "-" and " " not in head and not _NUMBER.fullmatch(head)
