"""Options that several commands have, and what adds options from tables: see ``job_options``, ``training_options``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from rankup.cli.output import console
from rankup.core.choices import RESUME_WITH

Command = Callable[..., None]


def parameter(name: str, kind: Any, option: Any, default: Any = None) -> inspect.Parameter:
    """An option or argument as typer reads it: the parameter of a command, of type ``kind``."""
    annotation = Annotated[kind, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def taking(shared: Iterable[inspect.Parameter]) -> Callable[[Command], Command]:
    """A decorator for commands: they take ``shared`` too, which come first, as ``**asked``.

    A parameter that a command declares without a default is one of the shared ones, by its name.
    """
    by_name = {parameter.name: parameter for parameter in shared}

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters.values()
        first = [p for p in own if p.annotation is typer.Context]
        last = [p for p in own if p not in first and p.name not in by_name and p.kind is not p.VAR_KEYWORD]
        parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*first, *by_name.values(), *last)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # where typer looks for options
        return command

    return decorate


def given(context: typer.Context, name: str) -> bool:
    """Whether the parameter stands on the command line, or in a variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _speak(chosen: bool) -> bool:
    console.answer_in_json(chosen)
    return chosen


JsonOption = Annotated[
    bool, typer.Option("--json", help="print the result as JSON on stdout", callback=_speak)
]


def resume_variables(choice: str | None) -> dict[str, str]:
    """The environment that tells the ranks of ``--resume-with``; empty without the option."""
    return {} if choice is None else {RESUME_WITH.variable: choice}
