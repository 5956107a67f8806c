"""``Resolved``: a job with nothing left to decide, and who decided what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec


@dataclass(frozen=True)
class Resolved:
    """A job at a site. ``origin`` says in words where each value came from.

    Its keys are those of ``JobSpec``, ``env.NAME`` for each variable, and ``site``.
    """

    spec: JobSpec
    site: Site
    origin: Mapping[str, str]
