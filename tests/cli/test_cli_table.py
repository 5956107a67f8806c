"""Tables on a wide terminal, a narrow one, and without a terminal."""

from __future__ import annotations

import io
import re

import pytest

from rankup.cli.output.table import print_table

HEAD = ("job", "state", "run directory")
LONG = "runs/a-long-name/20260301-101500-a1b2"
ROWS = [("4711", ("failed", "red"), LONG), ("12", "done", "")]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, stream, columns):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout", stream)
    print_table(HEAD, ROWS, fold=("run directory",))
    return stream.getvalue()


@pytest.mark.parametrize("columns", [20, 200])
def test_without_a_terminal_each_row_is_one_plain_line(monkeypatch, columns):
    assert shown(monkeypatch, io.StringIO(), columns).splitlines() == [
        "job   state   run directory",
        f"4711  failed  {LONG}",
        "12    done",
    ]


def test_a_wide_terminal_shows_each_row_on_one_line_with_colours(monkeypatch):
    text = shown(monkeypatch, Terminal(), 200)
    assert f"4711  \x1b[31mfailed\x1b[0m  {LONG}" in text


def test_a_narrow_terminal_folds_a_column_and_loses_nothing(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    print_table(HEAD, ROWS, fold=("run directory",))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert "".join(line[14:].strip() for line in lines[1:-1]) == LONG  # the last line is the second row
