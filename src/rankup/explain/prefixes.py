"""What launchers and loggers put before a line: the rank, the host, the time, colours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rankup.core.plain_text import plain

# The rank among all: torch's excepthook and logging, rankup, Open MPI's --tag-output, Hydra's -prepend-rank.
_RANK = re.compile(
    r"\[rank ?(?P<torch>\d+)\]:? ?|\[\d+,(?P<ompi>\d+)\]<std(?:out|err)>: ?"
    r"|\[(?P<hydra>\d+)\] (?=Traceback|  File |\w+Error)"
)
# The local rank, with its role: torchrun --tee.
_LOCAL = re.compile(r"\[(?!rank)[A-Za-z_]+(?P<local>\d+)\]: ?")
# An actor of Ray, and Accelerate's copy of the output of its ranks.
_ACTOR = re.compile(r"\((?:\S+ )?pid=\d+(?:, ip=[\w.:]+)?\) ?|stderr: ")
_TASK = re.compile(r" *(?P<task>\d+): ?")  # srun --label
# A task's lines that nothing but srun's label explains.
_SURE = re.compile(r" *\d+: (?:\[rank\d|Traceback \(most|  File \"|\[?[WEI]\d{4} |slurmstepd)")
# torch's label after something without a line end: a progress bar.
_WITHIN = re.compile(r"\[rank\d+\]: ?(?=Traceback |\[[EWIF]\d|[\w.]+(?:Error|Exception)\b)")
# A progress bar without a line end.
_BAR = re.compile(r"^.*\d ?[\w/]{0,12}/(?:s|it)\b[^\]]{0,200}\](?=\S)")
_STAMPS = (
    # [E1218 20:27:21.426415540 file.cpp:1] of torch's C++, W1122 14:33:27.075000 of its Python
    re.compile(r"^\[?[WEIF](?P<month>\d\d?)(?P<day>\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:\.\d+)?)"),
    re.compile(
        r"^\W?\d{4}[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T _](?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:[.,]\d+)?)"
    ),
    re.compile(r"CANCELLED AT \d{4}-(?P<month>\d\d)-(?P<day>\d\d)T(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"),
)
_WARNING = re.compile(
    r"^\[?W\d{3,4} \d\d:|^\[W \w+\.cpp:\d+\]|^[\d:. -]+: [WI] \w+/|\b\w*Warning(?:: | \[)|NCCL INFO "
    r"|^\W?(?:\S+ ){0,3}(?:WARNING|WARN|INFO|DEBUG)\b"
    r"|\b[Rr]etrying\b|entering retry loop|\bwill (?:be retried|retry)\b"
)
_NCCL = re.compile(r"NCCL WARN")
_QUOTES = str.maketrans("‘’“”", "''\"\"")  # programs print them, where the locale is UTF-8


@dataclass(frozen=True)
class Line:
    """A line without its prefixes. ``raw`` is without colours; ``time`` in seconds of a year, None if unknown.

    ``rank`` is the rank among all, ``local`` the one on its node, ``task`` srun's label. ``warning``: its logger calls
    it less than an error.
    """

    raw: str
    text: str
    rank: int | None = None
    local: int | None = None
    task: int | None = None
    time: float | None = None
    warning: bool = False


def is_labelled(lines: Iterable[str]) -> bool:
    """Whether these lines have srun's label. Any program may print "3: ", so it takes more than one such line."""
    labelled = others = 0
    for line in lines:
        if _SURE.match(line):
            return True
        found = _TASK.match(line) is not None
        labelled, others = labelled + found, others + (not found and line.strip() != "")
    return labelled >= 4 and labelled > 4 * others


def parse(raw: str, *, labelled: bool) -> Line:
    raw = plain(raw)
    text, rank, local, task = raw.translate(_QUOTES), None, None, None
    if found := _ACTOR.match(text):
        text = text[found.end() :]
    if labelled and (found := _TASK.match(text)):
        task, text = int(found["task"]), text[found.end() :]
    if found := _LOCAL.match(text):
        local, text = int(found["local"]), text[found.end() :]
    if "[rank" in text and not _RANK.match(text) and (within := _WITHIN.search(text)):
        text = text[within.start() :]
    if "/s" in text or "/it" in text:
        text = _BAR.sub("", text)
    while found := _RANK.match(text):
        number = found["torch"] or found["ompi"] or found["hydra"]
        rank, text = int(number), text[found.end() :]
    warning = _WARNING.search(text[:300]) is not None and not _NCCL.search(text)
    return Line(raw, text, rank, local, task, stamp(text), warning)


def stamp(text: str) -> float | None:
    """The time at the begin of a line, in seconds of a year: logs do not agree on more."""
    for pattern in _STAMPS:
        if found := pattern.search(text[:120]):
            days = int(found["month"]) * 31 + int(found["day"])
            return ((days * 24 + int(found["h"])) * 60 + int(found["m"])) * 60 + float(
                found["s"].replace(",", ".")
            )
    return None
