"""Command lines: options and their values, up to the command or the operands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rankup.check.facts.job.commands import EMPTY, Literal, Value


@dataclass(frozen=True)
class Grammar:
    """The options of a program: ``values`` take one in the next word, ``aliases`` give the name of a spelling.

    An option that is not in ``values`` takes its value after ``=`` only, or none. ``glued`` are short options whose
    value may follow without a blank (``-N2``).
    """

    values: frozenset[str]
    aliases: Mapping[str, str]
    glued: frozenset[str] = frozenset()
    many: Mapping[str, int] | None = None  # options that take several words
    flags: frozenset[str] | None = None  # if given: what is not a flag takes a value

    def name(self, option: str) -> str:
        return self.aliases.get(option) or option.lstrip("-")

    def takes_value(self, option: str) -> bool:
        if self.flags is not None:
            return option not in self.flags
        return option in self.values


@dataclass(frozen=True)
class Parsed:
    options: dict[str, Value]  # canonical name without dashes → value; EMPTY for a flag
    words: dict[str, Value]  # canonical name → the word in which it stands
    rest: tuple[Value, ...]  # from the first operand on


def parse(argv: Sequence[Value], grammar: Grammar) -> Parsed:
    """Splits the words after a program's name. The last of equal options wins."""
    options: dict[str, Value] = {}
    words: dict[str, Value] = {}
    index = 0
    while index < len(argv):
        word = argv[index]
        head = word.head
        if not head.startswith("-") or head == "-":
            if head == "" and word.atoms and not isinstance(word.atoms[0], Literal) and _may_be_options(word):
                index += 1  # "${OPTIONS[@]}": nobody knows what is in it, most likely options
                continue
            break
        if head == "--":
            index += 1
            break
        option, equals, _ = head.partition("=")
        if equals and (option.startswith("--") or option in grammar.values or option in grammar.aliases):
            name = grammar.name(option)
            options[name], words[name] = word.after(len(option) + 1), word
        elif head[:2] in grammar.glued and len(word.text) > 2 and not head.startswith("--"):
            name = grammar.name(head[:2])
            options[name], words[name] = word.after(2), word
        elif (known := word.known) is not None and grammar.takes_value(known):
            name = grammar.name(known)
            count = (grammar.many or {}).get(known, 1)
            if count > 1 and index + 1 < len(argv) and "=" in argv[index + 1].head:
                count = 1  # PALS: -env NAME=value; Hydra: -env NAME value
            options[name] = argv[index + 1] if index + 1 < len(argv) else EMPTY
            words[name] = word
            index += count
        else:
            name = grammar.name(head)
            options[name], words[name] = EMPTY, word
        index += 1
    return Parsed(options, words, tuple(argv[index:]))


def _may_be_options(word: Value) -> bool:
    """Whether a word from an unknown variable is named like a list of options (``$SRUN_ARGS``, ``${OPTS[@]}``)."""
    return any(
        part in variable.name.upper()
        for variable in word.variables()
        for part in ("ARG", "OPT", "FLAG", "PARAM")
    )


def grammar(
    values: str,
    aliases: Mapping[str, str],
    glued: str = "",
    many: Mapping[str, int] | None = None,
    flags: Collection[str] | None = None,
) -> Grammar:
    """From options in one string, with dashes."""
    return Grammar(
        frozenset(values.split()),
        aliases,
        frozenset(glued.split()),
        many,
        None if flags is None else frozenset(flags),
    )
