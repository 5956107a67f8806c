"""What ``qstat -f`` prints, as JSON or as text: the attributes of each job, by its id."""

from __future__ import annotations

import json
import re
from typing import Any

Attributes = dict[str, str]
_JOB = re.compile(r"Job Id: ?(\S+)")
_ATTRIBUTE = re.compile(r"    (\S+) = (.*)")


def read_qstat(text: str) -> dict[str, Attributes]:
    """Every job in ``text``. {} where there is none, and for JSON that some versions write wrongly."""
    if text.lstrip().startswith("{"):
        return _from_json(text)
    return _from_text(text)


def _from_json(text: str) -> dict[str, Attributes]:
    try:
        said = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return {}
    jobs = said.get("Jobs") if isinstance(said, dict) else None
    if not isinstance(jobs, dict):
        return {}
    return {job: _flat(values) for job, values in jobs.items() if isinstance(values, dict)}


def _flat(values: dict[str, Any]) -> Attributes:
    """``Resource_List: {walltime: …}`` → ``Resource_List.walltime``: the names that the text has."""
    attributes: Attributes = {}
    for key, value in values.items():
        if isinstance(value, dict):
            attributes |= {f"{key}.{inner}": str(deeper) for inner, deeper in value.items()}
        else:
            attributes[key] = str(value)
    return attributes


def _from_text(text: str) -> dict[str, Attributes]:
    """``Job Id: …``, then ``    name = value`` lines; a long value continues in lines that begin with a tab."""
    jobs: dict[str, Attributes] = {}
    attributes: Attributes = {}
    last = ""
    for line in text.splitlines():
        job = _JOB.match(line)
        attribute = _ATTRIBUTE.match(line)
        if job:
            attributes, last = jobs.setdefault(job[1], {}), ""
        elif attribute:
            last = attribute[1]
            attributes[last] = attribute[2]
        elif line.startswith("\t") and last:
            attributes[last] += line[1:]
    return jobs
