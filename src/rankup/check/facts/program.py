"""What a Python program does with ranks, devices, data and files."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankup.check.document import Document
from rankup.check.facts.start import Start
from rankup.sites.site import Site


@dataclass
class Program:
    """A Python program."""

    document: Document
    site: Site | None = None
    starts: list[Start] = field(default_factory=list)  # by the job scripts that are checked with it
