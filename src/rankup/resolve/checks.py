"""The job of values, and everything that is invalid in them, at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rankup.core.choices import RESUME_WITH
from rankup.findings.engine import FactMissing, Source
from rankup.findings.finding import Finding, Severity
from rankup.resolve.origins import Layer, fill_defaults
from rankup.resolve.resolved import FLAG, Resolved
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

# What decides which of a site's defaults a job gets, and what is derived from them.
_SHAPE = {"nodes", "gpus_per_node", "nproc_per_node"}
_REQUIRED = [key for key, field in JobSpec.model_fields.items() if field.is_required()]


def checked_job(
    values: Layer,
    site: Site,
    *,
    command: str,
    where: str,
    asked: Collection[str],
    env: Mapping[str, str],
    wrong: Collection[str] = (),
    found: list[Finding],
) -> Resolved:
    """The job of ``values`` at ``site``; what is invalid is added to ``found``, and the job's spec is then partial.

    ``command`` is the one that asks, ``where`` the place of values that contradict each other, "" if the site is not
    known. ``asked`` are the keys that somebody gave; ``wrong`` those that ``found`` has already. ``env`` is the
    environment in which the command was given.
    """
    fill_defaults(values, site)
    folder = values["folder"][0]
    given = {key: value for key, (value, _) in values.items() if not key.startswith("env.")}
    given["env"] = {key[4:]: value for key, (value, _) in values.items() if key.startswith("env.")}
    given |= {key: _absolute(folder, given[key]) for key in ("venv", "pixi")}
    if not _is_image_name(given["container"], given["container_runtime"] or site.containers.runtime):
        given["container"] = _absolute(folder, given["container"])
    given["conda"] = _absolute(folder, given["conda"]) if "/" in str(given["conda"]) else given["conda"]
    given["binds"] = tuple(_bind(folder, bind) for bind in given["binds"])
    if isinstance(given["stage"], dict):
        given["stage"] = {name: _absolute(folder, path) for name, path in given["stage"].items()}
    given["runs_root"] = folder / Path(given["runs_root"]).expanduser()
    # In the order of the fields; the variables are the last.
    keys = [*(key for key in JobSpec.model_fields if key in values), *(k for k in values if k[:4] == "env.")]
    origin = {key: values[key][1] for key in keys}

    bad = {*wrong, *(key for key in _REQUIRED if key not in given)}
    if "command" in bad - {*wrong}:
        usage = f"{command} [OPTIONS] script.py [ARGUMENTS]"
        found.append(Finding("no-script", Severity.ERROR, "there is nothing to run", fix=usage))
    try:
        spec = JobSpec.model_validate(given)
    except ValidationError as error:
        from rankup.spec.validation import describe_errors

        for key, why, hint in describe_errors(error):
            if (name := key.partition(".")[0]) not in bad:
                bad.add(name)
                found.append(_invalid(key, why, hint, values, command))
    if bad or not where:
        if not where or bad & _SHAPE:
            bad |= JobSpec.model_fields.keys() - {key.partition(".")[0] for key in asked}
        spec = PartialJob.of(given, bad)
    reasons = spec.contradictions
    found += [Finding("impossible-job", Severity.ERROR, why, place=where) for why in reasons]
    return Resolved(spec, site, origin, env=env)


def _absolute(folder: Path, text: Any) -> Any:
    """A path of the job, which begins at its ``folder``. Addresses of images, and a ``$`` for the job's shell, stay."""
    if not isinstance(text, str) or not text or "$" in text or "://" in text:
        return text
    return str(folder / Path(text).expanduser())


def _is_image_name(text: Any, runtime: str) -> bool:
    """Apptainer takes files and addresses. For the others, all that does not begin as a path is a name of their own."""
    return runtime not in ("apptainer", "singularity") and not str(text).startswith(("/", ".", "~"))


def _bind(folder: Path, bind: Any) -> Any:
    path, colon, target = str(bind).partition(":")
    return _absolute(folder, path) + colon + target


def _invalid(key: str, why: str, hint: str, values: Layer, command: str) -> Finding:
    from rankup.spec.validation import flag, invalid

    origin = values.get(key, values.get(key.partition(".")[0], (None, "env")))[1]
    name = flag(key, command.removeprefix("rankup ")) if origin == FLAG else key
    code = f"bad-{key.partition('.')[0].replace('_', '-')}"
    place = "" if origin == FLAG else origin  # the message names the flag
    return Finding(code, Severity.ERROR, invalid(name, why), place=place, fix=hint)


def _variables(job: Resolved) -> Iterator[Finding]:
    """A secret's value is taken from the environment of the command, so it must be set there."""
    for name in job.spec.secrets:
        if name not in job.env:
            yield Finding(
                "unset-secret",
                Severity.ERROR,
                f"the variable {name} is to be passed to the job, but is not set here",
                place=f"--env {name}",
                fix=f"export {name}=… first; or --env {name}=VALUE, if it is not secret",
            )
    choice = job.spec.env.get(RESUME_WITH.variable, "new")
    if choice not in RESUME_WITH.values:
        yield Finding(
            "bad-resume-with",
            Severity.ERROR,
            f"--resume-with must be new (the script's settings) or old (the saved ones), got {choice!r}",
        )


VARIABLES: Mapping[str, Source[Resolved]] = {"unset-secret": _variables}


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

    def __getattr__(self, name: str) -> Any:
        if name in JobSpec.model_fields:
            raise FactMissing(name)
        return super().__getattr__(name)  # type: ignore[misc]  # pydantic hides it from type checkers
