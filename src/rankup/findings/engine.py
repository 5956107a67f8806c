"""The engine: findings from named sources, ordered, and what they mean for the exit code. It does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from rankup.errors import RankupError
from rankup.findings.error import findings_of
from rankup.findings.finding import Confidence, Finding, Severity, in_order

Facts = TypeVar("Facts")
Source = Callable[[Facts], Iterable[Finding]]


class FactMissing(Exception):
    """Raised by facts when one of them is not known, such as a value that is itself invalid.

    A source that needs it finds nothing more: what follows from a wrong value helps nobody.
    """


def collect(
    sources: Mapping[str, Source[Facts]], facts: Facts, *, ignore: Collection[str] = ()
) -> list[Finding]:
    """Everything that ``sources`` (name → source) find in ``facts``, most severe first.

    ``ignore`` holds codes of findings or names of sources; those sources are not called.
    """
    found: list[Finding] = []
    for name, source in sources.items():
        if name in ignore:
            continue
        try:
            for finding in source(facts):
                found += [finding] if finding.code not in ignore else []
        except FactMissing:
            continue
        except RankupError as error:  # a check that other code calls as well, and that raises
            found += findings_of(error)
    return in_order(found)


def first(sources: Mapping[str, Source[Facts]], facts: Facts) -> Finding | None:
    """The first finding of the first source that has one: for a diagnosis, whose sources exclude each other."""
    found = (collect({name: source}, facts) for name, source in sources.items())
    return next((findings[0] for findings in found if findings), None)


def fails(findings: Iterable[Finding]) -> bool:
    """Whether a command must end with exit code 1: for errors that are sure, and for nothing else."""
    return any(f.severity is Severity.ERROR and f.confidence is Confidence.SURE for f in findings)
