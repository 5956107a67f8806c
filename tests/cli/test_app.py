"""The dispatcher: help without imports, errors drawn in one place, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from rankup.cli import app


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "rankup", *args], capture_output=True, text=True)


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_an_answer_from_the_table_loads_few_modules_of_rankup(option: str):
    code = (
        "import sys; from rankup.cli.app import main\n"
        f"try: main(['{option}'])\nexcept SystemExit as e: assert e.code == 0\n"
        "print(*(name for name in sys.modules if name.partition('.')[0] == 'rankup'), sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.split()) <= 8, done.stderr


def test_help_lists_every_command_and_imports_neither_torch_nor_the_command_lines_libraries():
    code = (
        "import sys; from rankup.cli.app import main\n"
        "try: main(['--help'])\nexcept SystemExit as e: assert e.code == 0\n"
        "heavy = {'torch', 'typer', 'rich', 'click', 'psutil', 'pydantic', 'dataclasses'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for commands in app.COMMANDS.values():
        for name, (_, summary) in commands.items():
            assert f"\n  {name:<13}  {summary}\n" in done.stdout


@pytest.mark.parametrize("words", [["run", "train.py"], ["status"], ["sites", "list"], ["check", "job.sh"]])
def test_a_current_directory_that_was_deleted_is_one_clear_error_of_every_command(words: list[str], tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); from rankup.cli.app import main; main(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=gone, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: the current directory was deleted"), done.stderr
    assert "[no-such-folder]" in done.stderr and "Traceback" not in done.stderr


HELP = """
import os, sys
sys.modules["torch"] = None
from rankup.cli.app import COMMANDS, load_command, main
for name in [name for group in COMMANDS.values() for name in group]:
    load_command(name)
for words in sys.argv[1:]:
    if os.fork() == 0:
        main(words.split())
    _, status = os.wait()
    print(f"\\f{os.waitstatus_to_exitcode(status)}", flush=True)
"""


@pytest.mark.slow
def test_no_command_needs_torch_for_its_page_of_help():
    """All pages: test_help_pages.py."""
    asked = ["train --help", "-h", "run -h", "snapshots -h", "snapshots list -h"]
    done = subprocess.run([sys.executable, "-c", HELP, *asked], capture_output=True, text=True)
    pages = done.stdout.split("\f")
    assert (len(pages), done.stderr) == (len(asked) + 1, "")
    for words, page, end in zip(asked, pages, pages[1:], strict=False):
        name = words.removesuffix("--help").removesuffix("-h").rstrip()
        assert f"Usage: rankup {name}" in page, words
        assert end.startswith("0\n"), words


def test_a_mistyped_command_is_one_error_with_a_guess():
    done = run("trian")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        "error: unknown command 'trian'; did you mean 'train'? [unknown-command]"
    )
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_error_is_json_where_json_was_asked_for_and_a_traceback_where_debug_was():
    done = run("train", "nothing", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"] == "unknown-workload"
    assert "Traceback (most recent call last)" in run("--debug", "train", "nothing").stderr


def test_a_wrong_option_is_wrong_usage():
    done = run("world", "--nonsense")
    assert done.returncode == 2
    assert done.stderr.startswith("error: `rankup world` has no option --nonsense [unknown-option]\n")
    assert "Traceback" not in done.stderr


def test_the_overview_fits_a_terminal_of_80_columns():
    assert max(len(line) for line in app.help_text().splitlines()) <= 80


def test_no_command_is_wrong_usage_and_shows_the_page():
    done = run()
    assert done.returncode == 2
    assert "Usage: rankup COMMAND" in done.stdout


@pytest.mark.repeated
@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["nonsense"], ["run", "missing.py"]])
def test_a_reader_that_has_gone_is_no_traceback(args, tmp_path):
    """``rankup … | head`` and ``rankup … 2>&1 | head``: the pipe is closed before the first word."""
    for both in (False, True):
        source, sink = os.pipe()
        os.close(source)
        err = sink if both else subprocess.PIPE
        command = [sys.executable, "-m", "rankup", *args]
        done = subprocess.run(command, stdout=sink, stderr=err, text=True, cwd=tmp_path)
        os.close(sink)
        assert "BrokenPipe" not in (done.stderr or "")
        assert done.returncode in (0, 1, 2)  # 120: the interpreter could not flush


def test_ctrl_c_while_a_command_is_imported_is_no_traceback(monkeypatch):
    from rankup.cli import app

    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "load_command", interrupted)
    with pytest.raises(SystemExit) as ended:
        app.main(["status"])
    assert ended.value.code == 130
