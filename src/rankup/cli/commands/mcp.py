"""``rankup mcp``: what rankup sees, as tools for an assistant."""

from __future__ import annotations

import asyncio
import sys

import typer

from rankup.errors import RankupError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("mcp")
def mcp_command() -> None:
    """Serve check, rehearse, render, doctor, status and explain to an assistant, by the Model Context Protocol.

    It speaks on stdin and stdout and opens no socket; the assistant starts it. No tool changes a file, submits or
    cancels a job, or starts a training.
    """
    try:
        from rankup.cli.mcp_server import serve
    except ModuleNotFoundError as error:
        raise RankupError(
            "no-mcp",
            f"rankup mcp needs {error.name}, which is not installed",
            hint="pip install 'rankup[mcp]'",
        ) from None
    if sys.stdin.isatty():
        raise RankupError(
            "stdin-is-a-terminal",
            "rankup mcp is started by an assistant, which speaks to it on stdin",
            hint='in its configuration: {"mcpServers": {"rankup": {"command": "rankup", "args": ["mcp"]}}}',
        )
    asyncio.run(serve())
