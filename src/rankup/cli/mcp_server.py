"""The tools of ``rankup mcp``: commands that change nothing, declared and run as the command line has them.

A tool's arguments are the parameters of its command, and its answer is what the command prints with ``--json``. Each
call is a process of its own, so that it works in the folder that it names, and what it prints does not meet the
protocol on stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import mcp.types as types
from anyio import CapacityLimiter, to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from rankup import __version__
from rankup.cli.app import load_command
from rankup.core import shell
from rankup.core.registry import target_of
from rankup.errors import RankupError

# Command → its parameters that no tool has: they write files, start programs outside the sandbox, or print no JSON.
TOOLS: Mapping[str, tuple[str, ...]] = {
    "check": ("fix", "unsafe_fixes", "diff", "form"),
    "rehearse": ("for_real", "unconfined"),
    "render": ("explain_config",),
    "doctor": ("python", "out", "plot"),
    "status": (),
    "explain": (),
}
FOLDER = "working_directory"
_SWITCH = {"type": "boolean"}
_WORD = {"type": ["string", "number"]}  # the command reads it, and says what is wrong with it
_LONGEST_S = (
    900.0  # a call; a rehearsal may take an hour if it is asked to, and nobody waits so long for a tool
)
_AT_ONCE = 4  # calls that run at the same time; others wait

Context = ServerRequestContext[Any]


def tools() -> list[types.Tool]:
    """One tool for each command, described by its page of help."""
    return [_tool(name) for name in TOOLS]


def command_line(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """The words after ``rankup`` that ask for this call. A value cannot become an option: ``--name=value``, ``--``.

    Raises ``RankupError`` for arguments that the tool does not have, or of another type.
    """
    options: list[str] = []
    words: list[str] = []
    known = {param.name: param for param in _parameters(name)}
    for key, value in arguments.items():
        if key not in known:
            raise RankupError(
                "unknown-argument",
                f"{name} has no argument {key!r}",
                hint=f"one of: {', '.join([*known, FOLDER])}",
            )
        if value is None:
            continue
        param = known[key]
        values = value if isinstance(value, list) and _takes_many(param) else [value]
        if any(isinstance(one, (dict, list)) for one in values):
            raise RankupError(
                "bad-argument", f"{name}: {key} must be {_schema(param)['type']}, got {value!r}"
            )
        if param.param_type_name == "argument":
            words += map(str, values)
        elif getattr(param, "is_flag", False):
            options += (param.opts if value else param.secondary_opts)[:1]
        else:
            options += [f"{max(param.opts, key=len)}={one}" for one in values]
    return [name, "--json", *options, "--", *words]


def call(name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
    """What the command answers: its JSON, or its error as JSON."""
    asked = dict(arguments)
    try:
        target_of("tool", name, dict.fromkeys(TOOLS, ""))
        folder = Path(asked.pop(FOLDER, None) or ".").expanduser()
        if not folder.is_dir():
            raise RankupError("no-such-folder", f"there is no folder {folder}", context=FOLDER)
        words = command_line(name, asked)
        done = shell.run([sys.executable, "-m", "rankup", *words], cwd=folder, timeout=_LONGEST_S)
        text = done.out
        try:
            answer = json.loads(text)
        except ValueError:
            raise RankupError("no-answer", f"rankup {name} gave no JSON", context=done.err.strip()) from None
        failed = isinstance(answer, dict) and "error" in answer
    except RankupError as error:
        text, failed = json.dumps(error.as_dict(), indent=2), True
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=failed)


async def serve() -> None:
    """Answer on stdin and stdout until the client closes them."""
    at_once = CapacityLimiter(_AT_ONCE)

    async def on_list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools())

    async def on_call_tool(_: Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
        return await to_thread.run_sync(partial(call, asked.name, asked.arguments or {}), limiter=at_once)

    server: Server[Any] = Server(
        "rankup", version=__version__, on_list_tools=on_list_tools, on_call_tool=on_call_tool
    )
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def _tool(name: str) -> types.Tool:
    folder = {
        "type": "string",
        "description": "where the command runs; default: where the server was started",
    }
    parameters = list(_parameters(name))
    schema = {
        "type": "object",
        "properties": {FOLDER: folder, **{str(param.name): _schema(param) for param in parameters}},
        "required": [param.name for param in parameters if param.required],
        "additionalProperties": False,
    }
    return types.Tool(
        name=name,
        description=load_command(name).help,
        input_schema=schema,
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def _parameters(name: str) -> Iterator[Any]:
    """The click parameters of a command that its tool takes."""
    left_out = (*TOOLS[name], "as_json")
    return (param for param in load_command(name).params if param.name not in left_out)


def _schema(param: Any) -> dict[str, Any]:
    one = _SWITCH if getattr(param, "is_flag", False) else _WORD
    shape = {"type": "array", "items": one} if _takes_many(param) else one
    return {**shape, "description": " ".join(filter(None, (param.metavar, param.help)))}


def _takes_many(param: Any) -> bool:
    return bool(param.multiple or param.nargs == -1)
