"""The ``JobSpec`` of values, and everything that is invalid in them, at once."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import ValidationError

from rankup.findings.finding import Finding, Severity
from rankup.resolve.facts import PartialJob
from rankup.resolve.layers import Layer, plain
from rankup.resolve.resolved import FLAG
from rankup.spec.jobspec import JobSpec, contradictions
from rankup.spec.validation import describe_errors, flag, invalid

# What decides which of a site's defaults a job gets, and what is derived from them.
_SHAPE = {"nodes", "gpus_per_node", "nproc_per_node"}


def checked_spec(
    values: Layer,
    *,
    command: str,
    where: str,
    asked: Collection[str],
    wrong: Collection[str] = (),
    found: list[Finding],
) -> JobSpec:
    """The job of ``values``; what is invalid is added to ``found``. With invalid values it is a ``PartialJob``.

    ``command`` is the one that asks, ``where`` the place of values that contradict each other, "" if the site is not
    known. ``asked`` are the keys that somebody gave; ``wrong`` those that ``found`` has already.
    """
    given = plain(values)
    bad = {
        *wrong,
        *(key for key, field in JobSpec.model_fields.items() if field.is_required() and key not in given),
    }
    if "command" in bad - {*wrong}:
        usage = f"{command} [OPTIONS] script.py [ARGUMENTS]"
        found.append(Finding("no-script", Severity.ERROR, "there is nothing to run", fix=usage))
    contradictory = False
    try:
        spec = JobSpec.model_validate(given)
        if where and not bad:
            return spec
    except ValidationError as error:
        for key, why, hint in describe_errors(error):
            if not key:
                contradictory = True
                if where:  # without the site's defaults nobody knows what contradicts what
                    found.append(Finding("impossible-job", Severity.ERROR, why, place=where, fix=hint))
            elif (field := key.partition(".")[0]) not in bad:
                bad.add(field)
                found.append(_invalid(key, why, hint, values, command))
    if not where or bad & _SHAPE:
        bad |= JobSpec.model_fields.keys() - {key.partition(".")[0] for key in asked}
    spec = PartialJob.of(given, bad)
    if not contradictory:
        reasons = contradictions(spec)
        found += [Finding("impossible-job", Severity.ERROR, why, place=where) for why in reasons]
    return spec


def _invalid(key: str, why: str, hint: str, values: Layer, command: str) -> Finding:
    origin = values.get(key, (None, "env"))[1]
    name = flag(key, command.removeprefix("rankup ")) if origin == FLAG else key
    code = f"bad-{key.partition('.')[0].replace('_', '-')}"
    return Finding(code, Severity.ERROR, invalid(name, why), place=origin, fix=hint)
