"""docs/reference/cli.md and errors.md are what the command line declares and prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import cli_pages  # noqa: E402

from generated import check_generated  # noqa: E402


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("name", "write"), [("cli.md", cli_pages.cli_page), ("errors.md", cli_pages.errors_page)]
)
def test_the_page_is_what_the_program_prints(name, write):
    page = ROOT / "docs" / "reference" / name
    check_generated(page.read_text(), write(), page.relative_to(ROOT), "python tools/cli_pages.py")


def test_there_are_ten_errors_each_with_a_code():
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert page.count("\n## ") == 10
    assert page.count("\n$ rankup ") == 10
    assert all("\nerror: " in section for section in page.split("\n## ")[1:])


def test_every_command_is_on_the_page():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for commands in cli_pages.COMMANDS.values():
        for name in commands:
            assert f"\n### rankup {name}\n" in page


def test_an_error_with_a_traceback_is_not_written_down(tmp_path):
    with pytest.raises(SystemExit):
        cli_pages.run("rankup world", tmp_path)  # it succeeds
