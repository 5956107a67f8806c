"""What a job script says: its directives, its commands, and what each of them starts, where."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankup.check.document import Document, Span
from rankup.check.facts.program import Program
from rankup.check.facts.start import Start
from rankup.sites.site import Site


@dataclass
class Launch:
    """One start of a training program by a job script."""

    span: Span
    script: str = (
        ""  # the program's path as the script says it, relative to the script's folder; "" if unknown
    )
    start: Start = field(default_factory=Start)  # the same for the rules of the program
    program: Program | None = None  # None: the file was not found, or is not Python


@dataclass
class Job:
    """A job script."""

    document: Document
    site: Site | None = None  # of --site; None: rules must not assume anything about the cluster
    launches: list[Launch] = field(default_factory=list)
