"""Options that several commands take, declared once, as the parameters of a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., None]


def taking(declared: Command) -> Callable[[Command], Command]:
    """A decorator for commands: they take the options of ``declared``'s signature too, which come first.

    A command is called with what it declares itself; it finds the others in ``context.params``.
    """
    shared = inspect.signature(declared, eval_str=True).parameters

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters

        @functools.wraps(command)
        def call(**values: Any) -> None:
            command(**{name: value for name, value in values.items() if name in own})

        merged = [*shared.values(), *(p for name, p in own.items() if name not in shared)]
        call.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]  # where typer looks for options
        return call

    return decorate
