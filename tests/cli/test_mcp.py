"""``rankup mcp``: an assistant calls the commands that change nothing, and gets what they print with ``--json``."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from rankup.cli import app, mcp_server
from rankup.errors import RankupError

JOB = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --time=1:00:00\n#SBATCH --output=logs/%j.out\nsrun python train.py\n"
CALLS = {
    "findings": ("check", {"paths": ["job.sh"]}, ["check", "--json", "job.sh"]),
    "an error": ("status", {"target": "bert"}, ["status", "--json", "bert"]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("project")
    (path / "job.sh").write_text(JOB)
    (path / "train.py").write_text("import torch\n")
    return path


@pytest.fixture(scope="module")
def session(folder):
    """The tools, and the answers of ``CALLS``, all of one server that the SDK's own client has started."""

    async def talk():
        server = StdioServerParameters(command=sys.executable, args=["-m", "rankup", "mcp"], cwd=folder)
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            answers = [client.call_tool(name, arguments) for name, arguments, _ in CALLS.values()]
            return tools, dict(zip(CALLS, await asyncio.gather(*answers), strict=True))

    return asyncio.run(talk())


@pytest.mark.slow
@pytest.mark.parametrize("case", CALLS)
def test_the_answer_is_what_the_command_prints(session, folder, monkeypatch, capfd, case):
    answer = session[1][case]
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit):
        app.main(CALLS[case][2])
    printed = json.loads(capfd.readouterr().out)
    assert json.loads(answer.content[0].text) == printed
    assert answer.is_error == (isinstance(printed, dict) and "error" in printed)


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("explain", {"targets": ["a.log", "b.log"]}, "explain --json -- a.log b.log"),
        ("check", {"paths": ["--fix"], "strict": True}, "check --json --strict -- --fix"),
        ("rehearse", {"script": "job.sh", "nodes": 2, "site": None}, "rehearse --json --nodes=2 -- job.sh"),
        ("render", {"command": ["-m", "t"], "exclusive": False}, "render --json --no-exclusive -- -m t"),
        (
            "render",
            {"job": "job.toml", "pre": ["-x", "-y"]},
            "render --json --job=job.toml --pre=-x --pre=-y --",
        ),
    ],
)
def test_arguments_become_a_command_line_where_no_value_is_taken_for_an_option(name, arguments, line):
    assert " ".join(mcp_server.command_line(name, arguments)) == line


def test_each_tool_is_read_only_and_has_only_these_parameters(session):
    """A new option of a command must be allowed here, or left out of its tool."""
    tools = {tool.name: set(tool.input_schema["properties"]) - {mcp_server.FOLDER} for tool in session[0]}
    job = tools.pop("render")
    assert tools == {
        "check": {"paths", "select", "ignore", "site", "strict", "explain_files"},
        "rehearse": {
            "script", "arguments", "nodes", "gpus_per_node", "cpus_per_node", "hosts", "site", "scheduler",
            "slurm_version", "mpi", "time_limit", "output",
        },
        "doctor": {"what", "folder", "nproc_per_node", "port", "timeout", "quick", "compare", "sizes", "dtype"},
        "status": {"target", "every", "timeout", "runs_root"},
        "explain": {"targets", "runs_root"},
    }  # fmt: skip
    assert {"command", "nodes", "time", "site"} <= job
    assert all(tool.annotations.read_only_hint for tool in session[0])


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("submit", {}, "unknown-tool"),
        ("check", {"paths": ["job.sh"], "fix": True}, "unknown-argument"),
        ("check", {"paths": [["job.sh"]]}, "bad-argument"),
        ("status", {"working_directory": "/nowhere"}, "no-such-folder"),
    ],
)
def test_a_wrong_call_is_an_error_with_a_code(name, arguments, code):
    answer = mcp_server.call(name, arguments)
    assert (answer.is_error, json.loads(answer.content[0].text)["error"]) == (True, code)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch, capfd):
    monkeypatch.delitem(sys.modules, "rankup.cli.mcp_server")
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(SystemExit) as end:
        app.main(["mcp"])
    printed = capfd.readouterr().err
    assert end.value.code == RankupError("", "").exit_code
    assert "[no-mcp]" in printed
    assert "pip install 'rankup[mcp]'" in printed
