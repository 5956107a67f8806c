"""Options that several commands take, made from tables: see ``job_options`` and ``training_options``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

Command = Callable[..., None]


def parameter(name: str, kind: Any, option: Any, default: Any = None) -> inspect.Parameter:
    """An option or argument as typer reads it: the parameter of a command, of type ``kind``."""
    annotation = Annotated[kind, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def taking(shared: Iterable[inspect.Parameter]) -> Callable[[Command], Command]:
    """A decorator for commands: they take ``shared`` too, which come first.

    A command is called with what it declares itself; it finds the others in ``context.params``. A parameter that it
    declares without a default is one of the shared ones, by its name.
    """
    by_name = {parameter.name: parameter for parameter in shared}

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters

        @functools.wraps(command)
        def call(**values: Any) -> None:
            command(**{name: value for name, value in values.items() if name in own})

        context = [p.replace(kind=p.KEYWORD_ONLY) for p in own.values() if p.annotation is typer.Context]
        mine = [
            p.replace(kind=p.KEYWORD_ONLY)
            for name, p in own.items()
            if name not in by_name and p.annotation is not typer.Context
        ]
        call.__signature__ = inspect.Signature([*context, *by_name.values(), *mine])  # type: ignore[attr-defined]  # where typer looks for options
        return call

    return decorate


def given(context: typer.Context, name: str) -> bool:
    """Whether the parameter stands on the command line, or in a variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"
