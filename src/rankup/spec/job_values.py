"""Values of a job as files write them: in ``[job]`` of a job.toml, and in ``[defaults]`` of a site."""

from __future__ import annotations

from typing import Any, get_origin

from rankup.errors import RankupError
from rankup.spec.jobspec import JobSpec

DURATIONS = ("time", "stop_before")

_LISTS = [key for key, field in JobSpec.model_fields.items() if get_origin(field.annotation) is tuple]
_COUNTS = (
    *("nodes", "gpus_per_node", "nproc_per_node", "cpus_per_task"),
    *("max_restarts", "max_requeues", "sample_gpus"),
)
# What TOML has to hold, and how that is written.
_KINDS: dict[str, tuple[type, str]] = {
    **dict.fromkeys((*_LISTS, "args"), (list, '["one", "two"]')),
    **dict.fromkeys(_COUNTS, (int, "2")),
    **dict.fromkeys(DURATIONS, (str, '"90m"')),
    **dict.fromkeys(("folder", "runs_root"), (str, '"/scratch/me"')),
    "mem": (str, '"32G"'),
    "env": (dict, '{ NAME = "value" }'),
}


def check_job_values(values: dict[str, Any], *, where: str) -> None:
    """Refuse values of another kind than ``JobSpec``'s; turn numbers among the variables into text, in place.

    A bare number is no time and no memory: schedulers disagree on its unit.
    """
    for key, value in values.items():
        kind, example = _KINDS.get(key, (object, ""))
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise RankupError(
                f"bad-{key.replace('_', '-')}",
                f"invalid value for {key}: {value!r}",
                context=where,
                hint=f"{key} = {example}",
            )
    if "env" in values:
        values["env"] = {name: as_text(value) for name, value in values["env"].items()}


def as_text(value: Any) -> Any:
    """Numbers as text: arguments and variables are nothing else, and files need not quote them."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
