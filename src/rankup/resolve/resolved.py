"""``Resolved``: a job with nothing left to decide, and who decided what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

FLAG = "flag"
# Origins of values that nobody asked for: they follow from the rest of the job, and from where it runs. Such values are
# decided anew when the job is changed or goes to another place.
FOLLOWS = re.compile("default|derived|allocation|site .*", re.DOTALL)


@dataclass(frozen=True)
class Resolved:
    """A job at a site. ``origin`` says in words where each value came from.

    Its keys are those of ``JobSpec``, ``env.NAME`` for each variable, and ``site``. The site of ``rankup run`` has no
    name. ``notes`` say what the job asks for and a run here does not do. ``env`` is the environment in which the
    command was given. While findings are collected, ``spec`` may be a ``PartialJob``.
    """

    spec: JobSpec
    site: Site
    origin: Mapping[str, str]
    notes: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def asked(self) -> list[str]:
        """The keys whose values somebody asked for."""
        return [key for key, origin in self.origin.items() if not FOLLOWS.fullmatch(origin)]
