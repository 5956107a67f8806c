"""The text of a job script → ``Job``."""

from __future__ import annotations

from rankup.check.document import Document
from rankup.check.facts.job import Job
from rankup.sites.site import Site


def read_job(document: Document, site: Site | None = None) -> Job:
    """What ``document``, a job script, says. It never fails: what cannot be read is not in the facts."""
    return Job(document, site)
