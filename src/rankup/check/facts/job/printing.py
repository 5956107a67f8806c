"""What commands print, where the script says it: ``echo``, ``printf``, and ``cat`` of a here-document."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rankup.check.facts.job.commands import Atom, Command, Literal, Value
from rankup.check.facts.job.source import joined

PRINTING = frozenset({"echo", "printf", "cat", "tee"})
TO_FILE = (">", ">|", ">>")
_ELSEWHERE = (*TO_FILE, ">&", "&>", "&>>")
_CONVERSION = re.compile(r"\\n|%[-\d.]*[a-zA-Z]")


def printed(command: Command) -> Value | None:
    """What a command prints; None if that is not known."""
    if command.name in ("cat", "tee") or command.heredoc is not None:
        return command.heredoc
    words = [word for word in command.argv[1:] if word.known not in ("-e", "-n")]
    if command.name == "echo":
        return joined(words)
    return _formatted(words) if command.name == "printf" and words and words[0].known != "-v" else None


def all_printed(commands: Iterable[Command]) -> Value | None:
    """What commands print one after another, as far as it is known; what goes to a file or a pipe is not theirs."""
    texts = [
        text
        for command in commands
        if not command.pipe and not any(one.operator.lstrip("1") in _ELSEWHERE for one in command.redirects)
        if (text := printed(command)) is not None
    ]
    return joined(texts, "\n") if texts else None


def _formatted(words: list[Value]) -> Value:
    """printf's format with its words; it begins again while there are words."""
    text, rest = words[0].known, words[1:]
    if text is None:
        return joined(words)
    template = Literal(text, words[0].span, True)
    atoms: list[Atom] = []
    for _ in range(len(words)):
        begun, at = len(rest), 0
        for match in _CONVERSION.finditer(text):
            atoms.append(template.part(at, match.start()))
            at = match.end()
            if match[0] == r"\n":
                atoms.append(Literal("\n", template.part(match.start(), at).span, True))
            elif rest:
                atoms += rest.pop(0).atoms
        atoms.append(template.part(at, len(text)))
        if not rest or len(rest) == begun:
            break
    return Value(tuple(atoms))
