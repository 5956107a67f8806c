"""What a Python program does with ranks, devices, data and files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rankup.check.document import Document

if TYPE_CHECKING:
    from rankup.check.facts.job import Job, Launch
    from rankup.sites.site import Site


@dataclass
class Program:
    """A Python program."""

    document: Document
    site: Site | None = None
    launches: list[tuple[Job, Launch]] = field(
        default_factory=list
    )  # the job scripts that start it, if any is known
