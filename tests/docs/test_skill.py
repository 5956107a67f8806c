"""SKILL.md names commands and options that exist."""

from __future__ import annotations

import re
import shlex

import pytest

from pages import ROOT
from rankup.cli.app import load_command

TEXT = (ROOT / "SKILL.md").read_text()
LINES = sorted(set(re.findall(r"`rankup ([^`]+)`", TEXT)))


def test_its_front_matter_names_it_and_says_when_to_use_it():
    _, front, _ = TEXT.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert fields["name"] == "rankup"
    assert len(fields["description"]) <= 1024


@pytest.mark.parametrize("line", LINES)
def test_a_command_exists_with_the_options_that_it_is_shown_with(line):
    name, *words = shlex.split(line)
    command = load_command(name)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    assert {word for word in words if word.startswith("-")} <= known
