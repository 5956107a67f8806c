"""Attempts: what the run is told, what ends it, and what is said where it fails by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.resolve.here import resolve_here
from rankup.resolve.resolved import Resolved
from rankup.run.execute import Result, View
from rankup.run.interrupts import Interrupts
from rankup.verify.attempts import Attempts, AttemptSpec, Killer


class Quiet:
    def follows(self, interruptions: int, seconds: float) -> None:
        pass

    def tick(self) -> None:
        pass

    def begins(self, what: str, processes: int) -> None:
        pass

    def ended(self, how: str) -> None:
        pass


def attempts(
    tmp_path: Path,
    code: int,
    *,
    traced: bool = True,
    ended: bool = True,
    error: RankupError | None = None,
    stop: str | None = None,
    signal: int | None = None,
):
    """Attempts of a job that ends with ``code`` at once; and the job that was started."""
    started: list[Resolved] = []

    def execute(job: Resolved, view: View) -> Result:
        started.append(job)
        if traced:
            records = [{"kind": "begin", "step": 0, "world_size": 1}]
            records += [{"kind": "exit", "step": 20}] if ended else []
            text = "".join(json.dumps(record) + "\n" for record in records)
            Path(job.spec.env["RANKUP_TRACE"], "rank-0.jsonl").write_text(text)
        run = RunDir.create(job.spec.runs_root, job.spec.name)
        if code == 75:
            run.write_outcome("requeue", {"stop": stop})
        interrupts = Interrupts()
        interrupts.first = signal
        return Result(code, run, None, None, 0.1, error, interrupts)

    (tmp_path / "train.py").touch()
    job = resolve_here({"env": {"MINE": "1"}}, command=("train.py",), folder=tmp_path)
    return Attempts(job, tmp_path, Quiet(), execute=execute), started


def ask(tmp_path: Path, **other: object) -> AttemptSpec:
    given = {"steps": 20, "saves": (3, 7), "interrupt": "step 4 1", **other}
    return AttemptSpec("uninterrupted", 2, tmp_path / "snapshots", **given)  # type: ignore[arg-type]


def test_a_run_is_told_where_to_trace_and_save_how_often_and_what_ends_it(tmp_path: Path):
    runner, started = attempts(tmp_path, 0)
    runner.run(ask(tmp_path))
    runner.run(ask(tmp_path))
    first, second = (job.spec.env for job in started)
    assert first["RANKUP_INTERRUPT"] == "step 4 1;stop 20 0"
    assert (first["RANKUP_SNAPSHOT_STEPS"], first["MINE"]) == ("3,7", "1")
    assert first["RANKUP_SNAPSHOT_DIR"] == second["RANKUP_SNAPSHOT_DIR"]
    assert first["RANKUP_TRACE"] != second["RANKUP_TRACE"]
    assert (started[0].spec.nproc_per_node, started[0].spec.nodes) == (2, 1)


@pytest.mark.parametrize("code", [0, 75])
def test_a_run_that_ended_or_stopped_as_asked_is_well(tmp_path: Path, code: int):
    runner, _ = attempts(tmp_path, code)
    end = runner.run(ask(tmp_path))
    assert end.attempt is not None and not end.killed and not end.stopped


def test_a_run_that_somebody_else_stopped_has_not_ended(tmp_path: Path):
    runner, _ = attempts(tmp_path, 75, stop="time-limit 1700000000")
    assert runner.run(ask(tmp_path, steps=None)).stopped == "time-limit 1700000000"
    assert runner.run(ask(tmp_path, steps=21)).stopped  # before the step that was meant


def test_a_run_that_a_signal_stopped_ends_the_proof(tmp_path: Path):
    runner, _ = attempts(tmp_path, 75)
    with pytest.raises(RankupError, match="a signal that verify did not send") as caught:
        runner.run(ask(tmp_path, steps=None))
    assert (caught.value.code, caught.value.exit_code) == ("interrupted", 1)


@pytest.mark.parametrize("code", [0, 75, 143])
def test_sigterm_to_verify_itself_ends_the_proof_however_well_the_ranks_ended(tmp_path: Path, code: int):
    runner, _ = attempts(tmp_path, code, signal=15)
    with pytest.raises(RankupError, match="ended by SIGTERM") as caught:
        runner.run(ask(tmp_path))
    assert (caught.value.code, caught.value.exit_code) == ("interrupted", 143)


def test_code_0_without_the_end_of_the_interpreter_is_no_end(tmp_path: Path):
    runner, _ = attempts(tmp_path, 0, ended=False)
    with pytest.raises(RankupError, match="a Python interpreter did not end normally") as caught:
        runner.run(ask(tmp_path))
    assert caught.value.code == "no-end"


def test_a_run_that_fails_by_itself_is_an_error_that_says_which(tmp_path: Path):
    failed = RankupError(
        "worker-failed", "the script failed: ValueError: no", context="rank-0.err", exit_code=1
    )
    runner, _ = attempts(tmp_path, 1, error=failed)
    with pytest.raises(RankupError) as caught:
        runner.run(ask(tmp_path))
    assert caught.value.message == "attempt 1 (uninterrupted) failed: the script failed: ValueError: no"
    assert (caught.value.context, caught.value.exit_code) == ("rank-0.err", 1)


def test_ctrl_c_ends_the_proof_with_the_code_of_the_signal(tmp_path: Path):
    runner, _ = attempts(tmp_path, 130)
    with pytest.raises(RankupError) as caught:
        runner.run(ask(tmp_path))
    assert (caught.value.code, caught.value.exit_code) == ("interrupted", 130)


def test_a_script_without_steps_to_trace_is_told_what_verify_needs(tmp_path: Path):
    runner, _ = attempts(tmp_path, 0, traced=False)
    with pytest.raises(RankupError, match="no step that could be traced") as caught:
        runner.run(ask(tmp_path))
    assert "run.steps" in caught.value.hint


def test_the_environment_of_this_process_stays_as_it_is(tmp_path: Path):
    runner, _ = attempts(tmp_path, 0)
    runner.run(ask(tmp_path))
    assert "RANKUP_TRACE" not in os.environ


def test_no_attempt_reports_to_a_server(tmp_path: Path):
    runner, started = attempts(tmp_path, 0)
    runner.run(ask(tmp_path))
    env = started[0].spec.env
    assert (env["WANDB_MODE"], env["MLFLOW_TRACKING_URI"]) == ("disabled", "")


def test_an_attempt_that_takes_too_long_is_killed(tmp_path: Path):
    run = RunDir.create(tmp_path, "attempts")
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    (run.logs / "events.jsonl").write_text(json.dumps({"event": "start", "pid": child.pid}) + "\n")
    killer = Killer(tmp_path / "frozen", limit=0.0)
    killer.tick(run)
    assert (killer.late, killer.killed, child.wait()) == (True, True, -signal.SIGKILL)
