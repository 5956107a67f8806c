"""Messages of rankup beside progress bars: each is a line of its own, and no empty line is before it."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rankup.core.whole_lines import Line, say, watch_lines
from rankup.runtime.records.progress_display import ProgressDisplay
from terminal import lines_of, shown_on_terminal

PROGRAM = """
import logging, tqdm
from rankup.core.whole_lines import say, warn, watch_lines
logging.basicConfig(format="%(message)s")  # its handler holds the stream that it finds
watch_lines()
for at in tqdm.tqdm(range(2), mininterval=0):
    say(f"message {at}")
    say("another")
    warn("careful")
for _ in tqdm.tqdm(range(2), mininterval=0, leave=False):
    pass
say("after a bar that has erased itself")
logging.error("ended")
"""


def said(lines: list[str]) -> list[str]:
    """Without the lines of bars, and without the line of code that a warning shows."""
    return [line for line in lines if "it/s" not in line and "?" not in line and not line.startswith("  ")]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_message_is_never_glued_to_a_bar_of_tqdm(tmp_path: Path, terminal: bool):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, "-u", "program.py"]
    if terminal:
        code, lines = shown_on_terminal(command, tmp_path)
    else:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True)
        code, lines = done.returncode, lines_of(done.stderr.decode())
    assert code == 0, lines
    warning = [line for line in lines if line.endswith("UserWarning: careful")]
    assert len(warning) == 1 and warning[0].startswith(str(tmp_path))
    assert said(lines) == [
        *("message 0", "another", warning[0], "message 1", "another"),
        *("after a bar that has erased itself", "ended"),
    ]


def test_a_message_is_one_write(monkeypatch: pytest.MonkeyPatch):
    class Counted(io.StringIO):
        writes = 0

        def write(self, text: str) -> int:
            self.writes += 1
            return super().write(text)

    stream = Counted()
    monkeypatch.setattr(sys, "stderr", stream)
    say("two\nlines")
    assert (stream.writes, stream.getvalue()) == (1, "two\nlines\n")


@pytest.mark.parametrize(
    ("written", "unfinished"),
    [
        ([], False),
        (["a line\n"], False),
        (["epoch 1: "], True),
        (["epoch 1: ", "\n"], False),
        (["a line\n", "\r 10%"], True),
        (["\r 10%", "\r    ", "\r"], False),  # tqdm(leave=False)
        (["1 of 3\r"], True),  # it is still to be seen
        (["\r 10%", " "], True),
        (["half", "\nwhole\n"], False),
    ],
)
def test_which_lines_are_unfinished(written: list[str], unfinished: bool):
    line = Line()
    for text in written:
        line.take(text)
    assert line.unfinished == unfinished


class OnlyWrites:
    """What scripts put into the place of stdout, to write a log as well."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


class Fixed(OnlyWrites):
    """As one with slots, it takes no other ``write``."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "write":
            raise AttributeError(name)
        super().__setattr__(name, value)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize("kind", [OnlyWrites, Fixed])
def test_a_stream_of_the_script_s_own_that_cannot_be_watched_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, kind: type[OnlyWrites]
):
    stream = kind()
    monkeypatch.setattr(sys, "stdout", stream)
    watched = len(watch_lines())
    print("a line")
    assert (watched, stream.text) == (1, "a line\n")  # stderr alone


def test_closed_streams_are_written_to_by_nobody(monkeypatch: pytest.MonkeyPatch):
    """``python train.py >&- 2>&-``: Python has None for them."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert watch_lines() == []
    say("nobody reads this")
    assert ProgressDisplay.for_this_process(in_run=False) is None
