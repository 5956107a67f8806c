"""The path of a computing centre's tutorial: the page's commands, in its order, on the lab."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lab import HEAD, SYSTEM_PATH, Lab

from pages import ROOT, SCRIPTS, Command, commands, missing

pytestmark = pytest.mark.cluster
PAGE = ROOT / "docs" / "how-to" / "from-a-centres-tutorial.md"


@pytest.fixture(scope="module")
def folder(cluster: Lab) -> Path:
    """Where one command finds what those before it have written."""
    copy = cluster.shared / "tutorial"
    shutil.copytree(SCRIPTS, copy, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    return copy


@pytest.mark.parametrize("command", commands(PAGE), ids=lambda command: command.line.split()[1])
def test_its_commands_do_what_it_shows(cluster: Lab, folder: Path, command: Command):
    env = {"PATH": f"{Path(cluster.python).parent}:{SYSTEM_PATH}"}
    done = cluster.run(HEAD, ["bash", "-c", f"cd {folder} && {command.line}"], env)
    printed = done.out + done.err
    assert done.code == command.code, f"{command.line}: code {done.code}\n{printed}"
    assert not missing(command.shown, printed), f"{command.line} printed\n{printed}"
