"""click's usage errors (unknown option, missing argument, invalid value) as ``RankupError``s, with the nearest name.

Some versions of typer bring a click of their own, so errors are told apart by the names of their classes.
"""

from __future__ import annotations

import re
from typing import Any

import typer

from rankup.core.nearest import nearest
from rankup.errors import RankupError

# The base class of all of them, in whichever click typer uses.
ClickError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

_QUOTED = re.compile(r"'([^']*)'")


def usage_error(error: Any, command_path: str) -> RankupError:
    """``error`` (a ``ClickError``) in our words. ``command_path``, as ``rankup logs``: for errors that lack it."""
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context else command_path
    hint = f"`{path} --help` shows usage, options and examples"
    kind = type(error).__name__
    if kind == "NoSuchOption":
        parameters = context.command.get_params(context)
        arguments = {p.name: _called(p) for p in parameters if p.param_type_name == "argument"}
        names = [name for p in parameters for name in (*p.opts, *p.secondary_opts) if p.name not in arguments]
        argument = arguments.get(error.option_name.lstrip("-").replace("-", "_"))
        guess = f": {argument} is given alone" if argument else did_you_mean(error.option_name, names)
        return RankupError("unknown-option", f"`{path}` has no option {error.option_name}{guess}", hint=hint)
    if kind == "MissingParameter":
        return RankupError("missing-argument", f"`{path}` requires {_called(error.param)}", hint=hint)
    if kind == "BadParameter" and error.param is not None:
        reason = _plain(error.message).partition(", unable to parse")[0]  # which repeats it
        name = _called(error.param)
        if reason.startswith("input should be "):
            return RankupError(
                "invalid-value", f"{name} must be {reason[len('input should be ') :]}", hint=hint
            )
        return RankupError("invalid-value", f"invalid value for {name}: {reason}", hint=hint)
    message = error.format_message()
    if kind == "BadOptionUsage":
        takes = "no value" if "does not take" in message else "a value"
        return RankupError("missing-value", f"{error.option_name} of `{path}` takes {takes}", hint=hint)
    commands = list(getattr(context.command, "commands", ())) if context else []
    of_group = f"one of: {', '.join(commands)}"
    if message.startswith("No such command") and (word := _QUOTED.search(message)):
        guess = did_you_mean(word[1], commands)
        return RankupError("unknown-command", f"`{path}` has no command {word[1]!r}{guess}", hint=of_group)
    if message.startswith("Missing command"):
        return RankupError("missing-command", f"`{path}` requires a command", hint=of_group)
    if found := re.search(r"unexpected extra arguments? ?\(?s?\)? ?\((.*)\)", message):
        return RankupError(
            "unexpected-argument", f"`{path}` does not take the argument {found[1]!r}", hint=hint
        )
    return RankupError("wrong-usage", _plain(message), context=path, hint=hint)


def did_you_mean(name: str, names: list[str]) -> str:
    """``; did you mean '--nodes'?``, or nothing if no name is near."""
    close = nearest(name, names)
    return f"; did you mean {close}?" if close else ""


def _called(param: Any) -> str:
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    return max(param.opts, key=len) if param.opts else str(param.name)


def _plain(message: str) -> str:
    """click's sentence in the form of ours: small initial, no full stop."""
    text = message.strip().rstrip(".")
    return text[:1].lower() + text[1:]
