"""The facts that findings about a job are judged by: the job, its site, and the environment of the submit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import model_validator

from rankup.findings.engine import FactMissing
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec


@dataclass(frozen=True)
class JobFacts:
    """``spec`` may be a ``PartialJob``. ``origin`` says in words where each value came from; ``env`` is the
    environment in which the job is submitted."""

    spec: JobSpec
    site: Site
    origin: Mapping[str, str]
    env: Mapping[str, str]


class PartialJob(JobSpec):
    """A job whose other values are well formed. To read one of those that are not raises ``FactMissing``."""

    @classmethod
    def of(cls, values: Mapping[str, Any], missing: Collection[str]) -> PartialJob:
        """``values`` (by the keys of ``JobSpec``) without the ``missing`` ones, which have no valid value."""
        stand_ins = {"command": ("true",), "name": "job", "folder": "/"}
        known = {key: value for key, value in values.items() if key not in missing}
        job = cls.model_validate({**stand_ins, **known})
        for key in missing:
            job.__dict__.pop(key, None)
        return job

    @model_validator(mode="after")
    def _consistent(self) -> PartialJob:
        return self  # its stand-ins contradict nothing that the user wrote

    def __getattr__(self, name: str) -> Any:
        if name in JobSpec.model_fields:
            raise FactMissing(name)
        return super().__getattr__(name)  # type: ignore[misc]  # pydantic hides it from type checkers
