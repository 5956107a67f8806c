"""Before a script prints its first line, a terminal shows that it has been started."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from rankup.cli.output.progress import BarView
from rankup.core.rundir import RunDir
from rankup.run.terminal import _Silence


def test_of_several_ranks_it_is_shown_how_many_are_there(tmp_path: Path):
    run = RunDir(tmp_path)
    run.logs.mkdir()
    view = BarView(2, plain=False)
    earlier, now = view._made - 60, view._made + 1

    def shown(*starts: float) -> str:
        lines = [json.dumps({"event": "start", "rank": 0, "time": at}) for at in starts]
        (run.logs / "events.jsonl").write_text("\n".join(lines))
        view.tick(run)
        return str(view._progress.tasks[0].description)

    with view:
        assert shown(earlier, earlier) == "0 of 2 ranks started"  # of an attempt before
        assert shown(earlier, now) == "1 of 2 ranks started"
        assert shown(now, now) == "2 of 2 ranks started, nothing printed yet"
        view.line(0, "out", "a line")
        assert not view._progress.live.is_started


@pytest.mark.parametrize("ends", ["output", "records"])
def test_of_one_process_on_a_terminal_it_is_shown_how_long_it_is_silent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, ends: str
):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    records = tmp_path / "steps.jsonl"
    silence = _Silence(records)
    silence.tick()
    assert capfd.readouterr().err == ""
    silence._since = time.time() - 1.5
    silence.tick()
    assert capfd.readouterr().err == "\r\x1b[2Kstarted, nothing printed yet  1 s"
    silence._since -= 1
    if ends == "records":
        records.touch()
        silence.tick()
    else:
        silence.end()
    assert capfd.readouterr().err == "\r\x1b[2K"
    silence._since -= 1
    silence.tick()
    assert capfd.readouterr().err == ""


def test_a_log_is_told_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    silence = _Silence(tmp_path / "steps.jsonl")
    silence._since -= 10
    silence.tick()
    silence.end()
    assert capfd.readouterr().err == ""
