"""The tutorial's pages do what they say: each page's commands are run in its order, and print what it shows."""

from __future__ import annotations

import re
import shutil
import textwrap

import pytest

from flaky import aborts_at_exit
from pages import PAGES, ROOT, SCRIPTS, blocks, commands, missing, run_page

pytestmark = pytest.mark.usefixtures("warm_python")  # the folder that is first on PATH


def test_the_pages_are_there():
    assert [page.name[0] for page in PAGES] == ["1", "2", "3", "4", "5"]
    assert all(commands(page) for page in PAGES)


@pytest.mark.repeated
@aborts_at_exit
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_commands_do_what_it_shows(tmp_path, page):
    folder = tmp_path / "tutorial"
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    for command, code, printed in run_page(page, folder):
        assert code == command.code, f"{command.line}: code {code}\n{printed}"
        assert not missing(command.shown, printed), f"{command.line} printed\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_it_shows_is_that_of_the_scripts(page):
    scripts = [path.read_text() for path in SCRIPTS.glob("*.py")]
    for code in blocks(page, "python"):
        assert any(textwrap.dedent(code) in script for script in scripts), code


def test_the_index_links_every_page():
    index = (ROOT / "docs" / "tutorial" / "README.md").read_text()
    assert [page.name for page in PAGES] == re.findall(r"\((\d-[a-z0-9-]+\.md)\)", index)


def test_a_line_that_was_not_printed_is_missed():
    printed = "[rank 0] weights 621.785732\nstep-50        good\n"
    assert missing(["…", "step-… good", "[rank 0] weights 621.…"], printed) == []
    assert missing(["weights 621.785732", "step-… damaged"], printed) == [
        "weights 621.785732",
        "step-… damaged",
    ]
