"""Values of a job as files write them: in ``[job]`` of a job.toml, and in ``[defaults]`` of a site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_origin

from rankup.findings.error import raise_errors
from rankup.findings.finding import Finding, Severity
from rankup.spec.jobspec import JobSpec

DURATIONS = ("time", "stop_before")

_LISTS = [key for key, field in JobSpec.model_fields.items() if get_origin(field.annotation) is tuple]
COUNTS = (
    *("nodes", "spare", "gpus_per_node", "nproc_per_node", "cpus_per_task"),
    *("max_restarts", "max_requeues", "threads", "node_rank"),
)
# What TOML has to hold, and how that is written.
_KINDS: dict[str, tuple[type, str]] = {
    **dict.fromkeys((*_LISTS, "args"), (list, '["one", "two"]')),
    **dict.fromkeys(COUNTS, (int, "2")),
    **dict.fromkeys(DURATIONS, (str, '"90m"')),
    **dict.fromkeys(("folder", "runs_root"), (str, '"/scratch/me"')),
    "mem": (str, '"32G"'),
    "env": (dict, '{ NAME = "value" }'),
    "stage": (dict, '{ data = "/scratch/me/data.tar" }'),
}


def wrong_kinds(values: Mapping[str, Any], *, where: str) -> dict[str, Finding]:
    """By key, values of another kind than ``JobSpec``'s.

    A bare number is neither a time nor a memory size: schedulers disagree on its unit.
    """
    found = {}
    for key, value in values.items():
        kind, example = _KINDS.get(key, (object, ""))
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            found[key] = Finding(
                f"bad-{key.replace('_', '-')}",
                Severity.ERROR,
                f"invalid value for {key}: {value!r}",
                place=where,
                fix=f"{key} = {example}",
            )
    return found


def check_job_values(values: dict[str, Any], *, where: str) -> None:
    """Refuse ``wrong_kinds``; turn numbers among the variables into text, in place."""
    raise_errors(wrong_kinds(values, where=where).values())
    variables_as_text(values)


def variables_as_text(values: dict[str, Any]) -> None:
    if "env" in values:
        values["env"] = {name: as_text(value) for name, value in values["env"].items()}


def as_text(value: Any) -> Any:
    """Numbers as text: arguments and variables are nothing else, and files need not quote them."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
