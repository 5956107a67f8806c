"""All that is wrong with a job, at once: invalid values, and what the valid ones ask of its program and its site."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from rankup.findings.engine import collect
from rankup.findings.error import raise_errors
from rankup.findings.finding import Finding, Severity
from rankup.resolve.advice import ADVICE
from rankup.resolve.facts import JobFacts, PartialJob
from rankup.resolve.program import PROGRAM
from rankup.resolve.site_limits import SECRETS, SITE_LIMITS
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec, contradictions
from rankup.spec.validation import describe_errors, flag, invalid

# Stands in for a site that is not known, so that the values that were given can be checked.
UNKNOWN_SITE = Site(name="unknown", scheduler="local")
# What decides which of a site's defaults a job gets, and what is derived from them.
_SHAPE = {"nodes", "gpus_per_node", "nproc_per_node"}


def checked_spec(
    values: Mapping[str, Any],
    origin: Mapping[str, str],
    site: Site | None,
    *,
    asked: Collection[str],
    wrong: Collection[str],
    found: list[Finding],
    of: str = "submit",
) -> JobSpec:
    """The job of ``values`` (by the keys of ``JobSpec``); what is invalid is added to ``found``.

    With invalid values, or without a ``site``, it is a ``PartialJob``. ``origin`` says where each value came from,
    ``asked`` which keys somebody gave (variables as ``env.NAME``); ``wrong`` are keys that ``found`` has already.
    ``of`` is the kind of command whose flags are named.
    """
    bad = {*wrong, *(JobSpec.model_fields.keys() - values.keys())}
    if "command" in bad - {*wrong}:
        usage = "rankup submit [OPTIONS] script.py [ARGUMENTS]"
        found.append(Finding("no-script", Severity.ERROR, "there is nothing to run", fix=usage))
    try:
        spec = JobSpec.model_validate(values)
        if site is not None and not bad:
            return spec
    except ValidationError as error:
        for key, why, hint in describe_errors(error):
            field = key.partition(".")[0]
            # What is not there was reported; and without the site's defaults nobody knows what contradicts what.
            if (field not in bad) if key else (site is not None):
                found.append(_invalid(key, why, hint, origin, site, of))
            bad.add(field)
    if site is None or bad & _SHAPE:
        bad |= JobSpec.model_fields.keys() - {key.partition(".")[0] for key in asked}
    spec = PartialJob.of(values, bad - {""})
    if "" not in bad:
        found += [_invalid("", why, "", origin, site) for why in contradictions(spec)]
    return spec


def check_job(
    spec: JobSpec,
    site: Site | None,
    origin: Mapping[str, str],
    env: Mapping[str, str],
    found: Collection[Finding],
    *,
    ignore: Collection[str] = (),
) -> None:
    """Raises ``FindingsError`` with ``found`` and all that is wrong with ``spec``, and the advice about it, if any of
    it is an error. ``ignore`` holds codes of advice to leave out."""
    facts = JobFacts(spec, site or UNKNOWN_SITE, origin, env)
    mistakes = [*found, *collect({**PROGRAM, **SECRETS, **(SITE_LIMITS if site else {})}, facts)]
    if mistakes:
        raise_errors([*mistakes, *(collect(ADVICE, facts, ignore=ignore) if site else ())])


def _invalid(
    key: str, why: str, hint: str, origin: Mapping[str, str], site: Site | None, of: str = "submit"
) -> Finding:
    if not key:
        return Finding(
            "impossible-job", Severity.ERROR, why, place=f"site {site.name}" if site else "", fix=hint
        )
    source = origin.get(key, "env")
    return Finding(
        f"bad-{key.partition('.')[0].replace('_', '-')}",
        Severity.ERROR,
        invalid(flag(key, of) if source == "flag" else key, why),
        place=source,
        fix=hint,
    )
