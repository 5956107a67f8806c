"""A command's page of help, from what it declares: usage, examples, arguments, options by group.

Drawn with rich, in the width of the terminal; without a terminal the same page is plain text.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rankup.core.toml_file import read_toml

#: Command → its examples: command line → what it does.
EXAMPLES: Mapping[str, Mapping[str, str]] = read_toml(Path(__file__).parents[1] / "examples.toml", "table")
_OTHER = "Options"  # the heading of options without a group, as --json and --help
_WIDEST_TERM = 30  # a longer option has its help below it
_WIDEST_PAGE = 110  # longer lines are hard to read, however wide the terminal is


def help_page(command: Any, context: Any, *, width: int | None = None, plain: bool = False) -> str:
    """The page of a click ``command``. ``width`` in columns: the terminal's if None. ``plain``: without colours."""
    columns = width or shutil.get_terminal_size().columns
    console = Console(
        width=min(columns, _WIDEST_PAGE),
        highlight=False,
        emoji=False,
        force_terminal=False if plain else None,
        color_system=None if plain else "auto",
    )
    with console.capture() as page:
        console.print(Group(*_parts(command, context)))
    return "\n".join(line.rstrip() for line in page.get().splitlines())


def usage(command: Any, context: Any) -> str:
    """``rankup logs [OPTIONS] [TARGET]``."""
    words = [context.command_path, "[OPTIONS]"]
    words += [_argument_term(p) for p in command.params if p.param_type_name == "argument"]
    if hasattr(command, "commands"):
        words.append("COMMAND …")
    return " ".join(words)


def option_groups(command: Any, context: Any) -> dict[str, list[Any]]:
    """The options of ``command`` by the heading of their group, in the order of declaration, without hidden ones."""
    groups: dict[str, list[Any]] = {}
    for param in command.get_params(context):
        if param.param_type_name == "option" and not param.hidden:
            groups.setdefault(getattr(param, "rich_help_panel", None) or _OTHER, []).append(param)
    return groups


def value_name(param: Any) -> str:
    """What a value is called: the declared metavar, else the parameter's own name in capitals."""
    name = max(getattr(param, "opts", None) or [param.name], key=len).lstrip("-")
    return str(param.metavar or name.upper().replace("_", "-"))


def _parts(command: Any, context: Any) -> Iterator[RenderableType]:
    yield Text.assemble(("Usage: ", "bold"), usage(command, context))
    yield ""
    for paragraph in (command.help or "").split("\n\n"):
        yield Padding(" ".join(paragraph.split()), (0, 0, 1, 2))
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    described = [(_argument_term(p), p.help) for p in arguments if p.help]
    if described:
        yield from _section("Arguments", described)
    if hasattr(command, "commands"):
        rows = [(name, _first_sentence(sub.help or "")) for name, sub in command.commands.items()]
        yield from _section("Commands", rows)
    groups = option_groups(command, context)
    for heading, options in groups.items():
        yield from _section(heading, [(_option_term(o), _option_help(o)) for o in options])
    path = context.command_path.removeprefix("rankup ")
    if examples := EXAMPLES.get(path):
        yield Text("Examples:", style="bold")
        for line, what in examples.items():
            yield Padding(Text(f"# {what}", style="dim"), (0, 0, 0, 2))
            yield Padding(Text(line, style="green"), (0, 0, 0, 2))


def _section(heading: str, rows: list[tuple[str, str]]) -> Iterator[RenderableType]:
    """A heading, and below it each term beside its text."""
    yield Text(f"{heading}:", style="bold")
    width = min(_WIDEST_TERM, max((len(term) for term, _ in rows), default=0))
    for term, text in rows:
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(width=width, style="cyan", no_wrap=True)
        table.add_column(ratio=1)
        if len(term) > width:
            yield Padding(Text(term, style="cyan"), (0, 0, 0, 2))
        table.add_row(term if len(term) <= width else "", Text(text))
        yield Padding(table, (0, 0, 0, 2))
    yield ""


def _argument_term(param: Any) -> str:
    name = value_name(param)
    if "[" in name or "…" in name:  # the declaration says it all
        return name
    name += "…" if param.nargs == -1 else ""
    return name if param.required else f"[{name}]"


def _option_term(option: Any) -> str:
    """``-f, --follow`` or ``--nodes N``; long names first where there is no short one."""
    names = ", ".join(sorted(option.opts, key=len))
    if option.secondary_opts:
        names += f" / {', '.join(option.secondary_opts)}"
    takes_value = not (getattr(option, "is_flag", False) or getattr(option, "count", False))
    return f"{names} {value_name(option)}" if takes_value else names


def _option_help(option: Any) -> str:
    text = "show this page" if option.name == "help" else (option.help or "")
    default = option.default
    if option.required:
        return f"{text} [required]"
    if isinstance(option.show_default, str):  # in words, where the value means nothing to a reader
        return f"{text} [default: {option.show_default}]"
    if isinstance(default, bool) or default is None or callable(default) or default in ("", (), []):
        return str(text)
    return f"{text} [default: {default}]".lstrip()


def _first_sentence(text: str) -> str:
    first = " ".join(text.split("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".")
