"""Before a script prints its first line, a terminal shows that it has been started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankup.cli.commands.verify import Lines
from rankup.cli.output.progress import BarView
from rankup.cli.output.trial_lines import TrialLines
from rankup.core.rundir import RunDir
from rankup.run.terminal import _Silence
from rankup.scale.plan import Trial


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
    silence._elapsed.since -= 1.5
    silence.tick()
    assert capfd.readouterr().err == "\r\x1b[2Kstarted, nothing printed yet  1 s"
    silence._elapsed.since -= 1
    if ends == "records":
        records.touch()
        silence.tick()
    else:
        silence.end()
    assert capfd.readouterr().err == "\r\x1b[2K"
    silence._elapsed.since -= 1
    silence.tick()
    assert capfd.readouterr().err == ""


def test_while_a_study_or_a_proof_runs_a_program_its_seconds_are_shown_and_go_before_the_next_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    study, proof = TrialLines(), Lines()
    study.begins(1, 2, Trial((("nproc", 1),), 0))
    study._elapsed.since -= 3.5
    study.tick(RunDir(tmp_path))
    study.line(0, "out", "epoch 1/4")
    study.tick(RunDir(tmp_path))  # in the same second
    said = "run 1 of 2: nproc=1, warm-up …\n\r\x1b[2K  running  3 s\r\x1b[2K  epoch 1/4\n"
    assert capfd.readouterr().err == said
    proof.begins("to its end", 1)
    proof._elapsed.since -= 3.5
    proof.tick()
    proof.ended("ended at step 3")
    said = (
        "attempt 1: 1 process, to its end …\n\r\x1b[2K  running  3 s\r\x1b[2K  ended at step 3, after 4 s\n"
    )
    assert capfd.readouterr().err == said


def test_a_log_is_told_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    silence = _Silence(tmp_path / "steps.jsonl")
    silence._elapsed.since -= 10
    silence.tick()
    silence.end()
    assert capfd.readouterr().err == ""
