"""SLURM's short notation for many host names, read and written: ``rack[1-2]n[3-4]``, ``a[1],b[3-4,007-010]``.

    list    = item { "," item }
    item    = { text | "[" range { "," range } "]" }
    range   = digits [ "-" digits ]            the width of the first number is the padding of all

With several brackets in one item the last one turns fastest, as in ``scontrol show hostnames``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from rankup.errors import RankupError

# A guard against a typing mistake that would fill the memory; the largest machines have some ten thousand
# nodes.
MAX_HOSTS = 200_000
# Longer runs of digits in a host name are part of its text: nobody counts with them.
_MAX_DIGITS = 18
_DIGITS = frozenset("0123456789")


def expand(text: str) -> list[str]:
    """The host names that a SLURM host list stands for, in order. Raises ``bad-hostlist``."""
    return _HostList(text).parse() if text.strip() else []


def compress(hosts: Sequence[str]) -> str:
    """A host list, one bracket per item, that expands to exactly ``hosts``: same order, same padding."""
    items: list[str] = []
    parts = [_split(host) for host in hosts]
    alike = itertools.groupby(parts, key=lambda part: (part[0], part[2], bool(part[1])))
    for (prefix, suffix, numbered), group in alike:
        numbers = [number for _, number, _ in group]
        if len(numbers) > 1 and numbered:
            items.append(f"{prefix}[{','.join(_ranges(numbers))}]{suffix}")
        else:
            items.extend(prefix + number + suffix for number in numbers)
    return ",".join(items)


def expand_counts(text: str) -> list[int]:
    """SLURM's counts per node: ``"2(x3),1"`` → ``[2, 2, 2, 1]`` (SLURM_TASKS_PER_NODE and its like)."""
    counts: list[int] = []
    for item in text.split(",") if text.strip() else []:
        count, bracket, rest = item.strip().partition("(x")
        times = rest[:-1] if bracket and rest.endswith(")") else "" if bracket else "1"
        if not _is_number(count) or not _is_number(times) or len(counts) + int(times) > MAX_HOSTS:
            raise RankupError(
                "bad-counts",
                f"{item.strip()!r} is not a count per node",
                context=f"in {_shorten(text)!r}",
                hint="SLURM writes counts as 2(x3),1: two on each of three nodes, then one",
            )
        counts.extend([int(count)] * int(times))
    return counts


class _HostList:
    """One pass over the text, from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self.at = 0

    def parse(self) -> list[str]:
        hosts = self._item(MAX_HOSTS)
        while self._next_is(","):
            self.at += 1
            hosts += self._item(MAX_HOSTS - len(hosts))
        return hosts

    def _item(self, room: int) -> list[str]:
        """Everything up to the next comma outside brackets; at most ``room`` hosts."""
        parts: list[list[str]] = []
        while self.at < len(self.text) and not self._next_is(","):
            parts.append(self._bracket(room) if self._next_is("[") else [self._plain()])
            if math.prod(map(len, parts)) > room:
                raise self._error(f"more than {MAX_HOSTS:,} hosts")
        if not parts:
            raise self._error("a host name is missing")
        return ["".join(choice) for choice in itertools.product(*parts)]

    def _plain(self) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in ",[":
            if self.text[self.at] == "]":
                raise self._error("a ']' without its '['")
            if not _in_host_name(self.text[self.at]):
                raise self._error(f"{self.text[self.at]!r} in a host name")
            self.at += 1
        return self.text[start : self.at]

    def _bracket(self, room: int) -> list[str]:
        self.at += 1
        numbers = self._range(room)
        while self._next_is(","):
            self.at += 1
            numbers += self._range(room - len(numbers))
        if not self._next_is("]"):
            raise self._error("a '[' without its ']'" if self.at == len(self.text) else "no number")
        self.at += 1
        return numbers

    def _range(self, room: int) -> list[str]:
        first = last = self._number()
        if self._next_is("-"):
            self.at += 1
            last = self._number()
        low, high = int(first), int(last)
        if low > high:
            raise self._error(f"the range {first}-{last} runs backwards")
        if high - low >= room:
            raise self._error(f"more than {MAX_HOSTS:,} hosts")
        return [str(number).zfill(len(first)) for number in range(low, high + 1)]

    def _number(self) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in _DIGITS:
            self.at += 1
        number = self.text[start : self.at]
        if not _is_number(number):
            raise self._error("a number of too many digits" if number else "no number")
        return number

    def _next_is(self, char: str) -> bool:
        return self.text.startswith(char, self.at)

    def _error(self, what: str) -> RankupError:
        return RankupError(
            "bad-hostlist",
            f"the host list is malformed: {what} at character {self.at + 1}",
            context=repr(_shorten(self.text)),
            hint="SLURM writes host lists like node[1-3,07-09],login",
        )


def _split(host: str) -> tuple[str, str, str]:
    """(text before, the last number in the name or nothing, text after)."""
    if not host or not all(_in_host_name(char) and char not in "[]," for char in host):
        raise RankupError(
            "bad-host-name", f"{_shorten(host)!r} is not a host name", hint="no blanks, commas or brackets"
        )
    end = len(host)
    while end and host[end - 1] not in _DIGITS:
        end -= 1
    start = end
    while start and host[start - 1] in _DIGITS:
        start -= 1
    if end - start > _MAX_DIGITS:
        return host, "", ""
    return host[:start], host[start:end], host[end:]


def _ranges(numbers: Sequence[str]) -> list[str]:
    """``["3", "4", "007"]`` → ``["3-4", "007"]``: runs that count up by one at the same padding."""
    runs: list[list[str]] = []
    for number in numbers:
        if runs and number == str(int(runs[-1][-1]) + 1).zfill(len(runs[-1][0])):
            runs[-1].append(number)
        else:
            runs.append([number])
    return [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def _is_number(text: str) -> bool:
    return 0 < len(text) <= _MAX_DIGITS and _DIGITS.issuperset(text)


def _in_host_name(char: str) -> bool:
    return char.isprintable() and not char.isspace()


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
