"""The options that describe a job, made from the fields of ``JobSpec``, for submit and render and for what runs here.

A command takes them by a decorator, and itself declares only what is its own::

    @app.command(context_settings=SCRIPT_LAST)
    @job_options("submit")
    def render(run_dir: RunDirOption = None, as_json: JsonOption = False, **asked: Any) -> None:
        \"\"\"Print the script.\"\"\"
        job = job_from(asked)  # of cli.submitted_job: RankupError for whatever is wrong with the job
        ...

``flags_from(asked)`` is what was given on the command line alone, by the keys of ``JobSpec``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_origin

import typer

from rankup.cli.options import Command, parameter, resume_variables, taking
from rankup.spec.flag import TIME_LIMIT, WHAT, Flag
from rankup.spec.job_values import COUNTS
from rankup.spec.jobspec import JobSpec

# Options end at the script: everything after it is the script's.
SCRIPT_LAST = {"allow_interspersed_args": False}

_COMMAND = "script.py ARGUMENTS…, any program, or a job.toml"
_MODULE = "the command names a module, as in python -m"
RESUME_WITH = parameter(
    "resume_with",
    str | None,
    typer.Option(
        metavar="new|old",
        help="if settings changed since the snapshot: use the script's (new) or the saved ones (old)",
        rich_help_panel=TIME_LIMIT,
    ),
)


def job_options(of: str) -> Callable[[Command], Command]:
    """All options of the job that a command of this kind ("submit" or "run") takes: what to run, and how."""
    what = [
        parameter("command", list[str] | None, typer.Argument(help=_COMMAND)),
        parameter("as_module", bool, typer.Option("-m", help=_MODULE, rich_help_panel=WHAT), False),
    ]
    last = [RESUME_WITH]
    if of == "submit":
        file = typer.Option(
            metavar="FILE", help="a job.toml; flags override its values", rich_help_panel=WHAT
        )
        site = typer.Option(
            metavar="NAME", help="profile of the cluster; `rankup sites list` shows all", rich_help_panel=WHAT
        )
        what += [parameter("job", Path | None, file), parameter("site", str | None, site)]
        why = typer.Option(
            "--explain-config", help="print each value and where it comes from", rich_help_panel=WHAT
        )
        last += [parameter("explain_config", bool, why, False)]
    return taking([*what, *_fields(of), *last])


def some_job_options(of: str, *keys: str) -> list[inspect.Parameter]:
    """The options of these fields alone, as ``job_options(of)`` has them."""
    return [option for option in _fields(of) if option.name in keys]


def _fields(of: str) -> Iterator[inspect.Parameter]:
    for key, field in JobSpec.model_fields.items():
        for flag in field.metadata:
            if isinstance(flag, Flag) and of in flag.of:
                kind = _kind(field.annotation)
                names = flag.names
                if kind is bool and not names:
                    word = key.replace("_", "-")
                    names = (f"--{word}/--no-{word}",)
                option = typer.Option(
                    *names,
                    metavar=flag.metavar or None,
                    help=flag.help,
                    rich_help_panel=flag.group,
                    show_default=False,
                )
                yield parameter(key, kind | None, option)


def _kind(annotation: Any) -> Any:
    """What typer makes of the words on a command line: str, bool, Path or list[str].

    Numbers stay text here: ``JobSpec`` reads them, so that what is wrong with them stands among the other findings.
    """
    if get_origin(annotation) in (tuple, dict):
        return list[str]
    return annotation if annotation in (bool, Path) else str


def flags_from(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of ``JobSpec`` that were given, and their values; an empty value asks for none (``--mem ""``).

    ``command`` is one of them: what is to run, or a job.toml in its place.
    """
    command = (*(["-m"] if asked.get("as_module") else []), *(asked.get("command") or []))
    flags: dict[str, Any] = {"command": command} if command else {}
    for key, value in asked.items():
        if key in JobSpec.model_fields and key != "command" and value not in (None, [], ()):
            flags[key] = tuple(v for v in value if v != "") if isinstance(value, (list, tuple)) else value
            if key in COUNTS and str(value).strip().isdecimal():  # blanks: from "$N "
                flags[key] = int(value)
    if flags.get("nproc_per_node") == "auto":
        del flags["nproc_per_node"]
    if "env" in flags:
        flags |= _variables(flags.pop("env"))
    if "stage" in flags:
        flags["stage"] = {name: path for name, _, path in (text.partition("=") for text in flags["stage"])}
    if chosen := resume_variables(asked.get("resume_with")):
        flags["env"] = {**flags.get("env", {}), **chosen}
    return flags


def _variables(given: tuple[str, ...]) -> dict[str, Any]:
    pairs = [text.partition("=") for text in given]
    return {
        "env": {name: value for name, equals, value in pairs if equals},
        "secrets": tuple(name for name, equals, _ in pairs if not equals),
    }
