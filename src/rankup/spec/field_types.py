"""The types of ``JobSpec``'s fields: what text is read, and which values are refused, with one sentence why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from rankup.core.endpoint import Endpoint
from rankup.core.rundir import LONGEST_NAME
from rankup.core.units import parse_duration, parse_size

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_JOB_ID = re.compile(r"\d+(_\d+|\[\d*\])?([.;][\w.-]+)?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What the job's script itself keeps in its shell while the job's variables are set there.
OF_THE_SCRIPT = frozenset(
    {
        *("BASE", "CONSEQUENCE", "END", "HOSTS", "INTERFACE", "JOB", "MAX_REQUEUES", "NODES_MAY_SUBMIT"),
        *("PLACES", "RUN", "RUNS", "STOP_BEFORE", "cores"),
        *("RANKUP_RUN", "RANKUP_RUN_DIR", "RANKUP_SUCCESSOR", "RANKUP_TASK"),
        *("BACK", "LOCAL_DISK", "RANKUP_STAGE", "STAGE", "STAGE_PYTHON"),
        *("address", "called", "holder", "hook", "i", "log_began", "log_file", "peer", "port", "python"),
        "terminated",
    }
)

# Of a line of bash: the assignments before a command's end, which stay; those before a word are that command's alone.
_ASSIGNED = re.compile(
    r"""(?:^|[;&|({]|\b(?:then|do|else|export|declare|typeset|readonly)\b(?:\s+-\w+)*)\s*"""
    r"""((?:[A-Za-z_]\w*\+?=(?:'[^']*'|"[^"]*"|\$\([^)]*\)|[^\s;&|'"])*\s*)+)(?=$|[;&|)}#])"""
)

Texts = TypeVar("Texts", str, tuple[str, ...], dict[str, str])
AnyText = TypeVar("AnyText", str, Path, tuple[str, ...], dict[str, str])


def _each(value: str | Path | tuple[str, ...] | dict[str, str]) -> tuple[str, ...]:
    if isinstance(value, dict):
        return (*value, *value.values())
    return value if isinstance(value, tuple) else (str(value),)


def _no_null(value: AnyText) -> AnyText:
    # No process can be given a null, and bash would end the word there.
    if any("\0" in text for text in _each(value)):
        raise ValueError("a null character cannot be passed to a process")
    return value


def _no_control_characters(value: Texts) -> Texts:
    for text in _each(value):
        if any(ord(c) < 32 for c in text):
            raise ValueError(f"{text!r} holds a control character")
    return value


def _one_word(value: Texts) -> Texts:
    # Such values are written into directives, which no shell unquotes.
    for text in _each(value):
        if re.search(r"[\s#'\"]", text):
            raise ValueError(f"{text!r} has to be one word without quotes")
    return value


def _one_line_each(lines: tuple[str, ...]) -> tuple[str, ...]:
    for line in lines:
        if "\n" in line or "\r" in line:
            raise ValueError(f"{line!r} has to be one line")
    return lines


def _run_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a run: letters, digits, '.', '_' and '-'")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"a run's name has at most {LONGEST_NAME} characters, got {len(name)}")
    return name


def _job_ids(ids: tuple[str, ...]) -> tuple[str, ...]:
    for ident in ids:
        if not _JOB_ID.fullmatch(ident):
            raise ValueError(f"{ident!r} is not the id of a job: use e.g. 4711, 4711_3 or 12.server")
    return ids


def _variables(names: Variables) -> Variables:
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a variable")
        if name in OF_THE_SCRIPT:
            raise ValueError(f"{name!r} is a variable of the job's own script: choose another name")
    return names


def _not_of_the_script(lines: tuple[str, ...]) -> tuple[str, ...]:
    for line in lines:
        for assigned in _ASSIGNED.findall(line):
            for name in re.findall(r"(?:^|\s)(\w+)\+?=", assigned):
                if name in OF_THE_SCRIPT:
                    raise ValueError(f"{name!r} is a variable of the job's own script: choose another name")
    return lines


def _sources(sources: dict[str, str]) -> dict[str, str]:
    for name, path in sources.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name data: letters, digits, '.', '_' and '-'")
        if not path:
            raise ValueError(f"{name} names no file or folder")
    return sources


def _inside(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise ValueError(f"{pattern!r} has to be a path inside the staged folder, such as 'out/*'")
    return patterns


def _indices(array: str) -> str:
    if array:
        from rankup.core.arrays import parse_array

        parse_array(array)
    return array


def _endpoint(text: str) -> str:
    if text:
        Endpoint.parse(text)
    return text


Variables = TypeVar("Variables", tuple[str, ...], dict[str, str])

Seconds = Annotated[
    int, BeforeValidator(lambda v: parse_duration(v) if isinstance(v, str) else v), Field(gt=0)
]
MiB = Annotated[int, BeforeValidator(lambda v: parse_size(v) if isinstance(v, str) else v), Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Command = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_no_null)]
Text = Annotated[str, AfterValidator(_no_null)]
Folder = Annotated[Path, AfterValidator(_no_null)]
RunName = Annotated[str, AfterValidator(_run_name)]
Plain = Annotated[str, AfterValidator(_no_control_characters)]
PlainTexts = Annotated[tuple[str, ...], AfterValidator(_no_control_characters)]
Word = Annotated[Plain, AfterValidator(_one_word)]
JobIds = Annotated[PlainTexts, AfterValidator(_one_word), AfterValidator(_job_ids)]
Lines = Annotated[tuple[str, ...], AfterValidator(_one_line_each)]
BashLines = Annotated[Lines, AfterValidator(_no_null), AfterValidator(_not_of_the_script)]
Array = Annotated[str, AfterValidator(_indices)]
EndpointText = Annotated[str, AfterValidator(_endpoint)]
EnvVariables = Annotated[dict[str, str], AfterValidator(_variables), AfterValidator(_no_null)]
StageSources = Annotated[dict[str, str], AfterValidator(_sources), AfterValidator(_no_control_characters)]
PathsInside = Annotated[PlainTexts, AfterValidator(_inside)]
VariableNames = Annotated[tuple[str, ...], AfterValidator(_variables)]
