"""Runs of ``rankup run`` afterwards: found by name, looked at, cancelled, and gone on with after a kill."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from commands import calling
from rankup.cli.resume_options import with_value
from rankup.core.records import RecordWriter
from rankup_process import Started, script
from snapshot_faults import saved

pytestmark = pytest.mark.usefixtures("warm_python")

# Counts its starts in the run directory; the first one waits to be ended.
COUNTING = """
import os, pathlib, sys, time
run = pathlib.Path(os.environ["RANKUP_RUN_DIR"])
with (run / "starts").open("a") as file:
    print(*sys.argv[1:], file=file)
print("rank", os.environ["RANK"], "start", len((run / "starts").read_text().splitlines()))
if os.environ.get("WAITS"):
    pathlib.Path("ready").touch()
    time.sleep(999)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script(tmp_path, COUNTING, "train.py")
    return tmp_path


call = calling()


def killed(folder, *args, how=signal.SIGKILL):
    run = Started(folder, *args, env={"WAITS": "1"})
    run.wait_for("ready")
    run.send(how)
    run.end()
    (folder / "ready").unlink()
    return run


def test_a_killed_run_goes_on_in_its_directory_as_it_was_asked_for(folder, capfd):
    first = killed(folder, "--name", "x", "--threads", "3", "train.py", "a b", "--lr", "1")
    path = first.run_dir
    code, out, _ = call(capfd, "status", "x")
    assert code == 0 and "failed: killed" in out
    code, out, err = call(capfd, "run", "--resume", "x")
    assert (code, out) == (0, "rank 0 start 2\n"), err
    assert first.run_dir == path  # there is one run directory still
    assert (path / "starts").read_text() == "a b --lr 1\n" * 2
    assert "threads = 3\n" in (path / "job.toml").read_text()
    assert (path / "outcome").read_text() == "done\n"
    shown = (path / "logs" / "rank-0.out").read_text().splitlines()
    assert (shown[0], shown[-1]) == ("rank 0 start 1", "rank 0 start 2")
    assert shown[1].startswith("==================== attempt 2, ")
    assert "attempts       2" in call(capfd, "status", "x")[1]
    code, _, err = call(capfd, "run", "--resume", "x")
    assert code == 2 and "[already-done]" in err


def test_the_script_may_be_named_again_and_the_last_run_of_it_is_meant(folder, capfd):
    killed(folder, "train.py", "1")
    script(folder, "print('other')", "other.py")
    assert call(capfd, "run", "other.py")[0] == 0
    code, out, _ = call(capfd, "run", "--resume", "train.py", "2")
    assert (code, out) == (0, "rank 0 start 2\n")
    assert next(folder.glob("runs/train/*/starts")).read_text() == "1\n2\n"


def test_a_run_that_is_done_is_not_told_to_resume_another_one_instead(folder, capfd):
    other = killed(folder, "--name", "other", "train.py", "1").run_dir
    script(folder, "print('done')", "done.py")
    assert call(capfd, "run", "done.py")[0] == 0
    _, _, err = call(capfd, "run", "--resume", "done")
    assert (
        "hint:  leave --resume out to run it again from the beginning; other runs are not finished: "
        f"rankup run --resume runs/other/{other.name}" in err
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--resume"], ["--resume="]),
        (["--resume", "x"], ["--resume=x"]),
        (["--resume=x", "train.py"], ["--resume=x", "train.py"]),
        (["--resume", "train.py", "--resume"], ["--resume=", "train.py", "--resume"]),
        (["--resume", "x", "train.py"], ["--resume=x", "train.py"]),
        (["--resume", "--json", "train.py"], ["--resume=", "--json", "train.py"]),
        (["--name", "--resume", "train.py"], ["--name", "--resume", "train.py"]),
        (["--json", "--resume", "-m", "pkg"], ["--json", "--resume=", "-m", "pkg"]),
        (["train.py", "--resume", "x"], ["train.py", "--resume", "x"]),
        (["--", "train.py", "--resume"], ["--", "train.py", "--resume"]),
    ],
)
def test_resume_takes_a_run_or_nothing(args, expected):
    assert with_value(args, {"--json", "-m"}) == expected


@pytest.mark.slow
def test_the_end_of_a_failed_run_says_how_it_goes_on(folder, capfd):
    script(folder, "raise SystemExit(3)", "fails.py")
    code, _, err = call(capfd, "run", "fails.py")
    (path,) = folder.glob("runs/fails/*")
    resume = f"rankup run --resume {path.relative_to(folder)}"
    assert (code, err.splitlines()[-1]) == (
        1,
        f"no snapshot: {resume} begins again, in the same directory",
    )
    (answer,) = json.loads(call(capfd, "status", "fails", "--json")[1])
    assert 0 <= answer["elapsed"] < 300
    (path / "snapshots").mkdir()
    err = call(capfd, "run", "--resume", "fails")[2]
    assert err.splitlines()[1] == "rankup: no snapshot to resume from: the script begins again"
    assert err.splitlines()[-1] == f"no snapshot yet: {resume} begins again"
    with RecordWriter(path / "records" / "steps.jsonl") as records:
        records.write("begin", facts={"snapshot_every": "7 steps"})
    err = call(capfd, "run", "--resume", "fails")[2]
    assert err.splitlines()[-1] == f"no snapshot yet (first due after 7 steps): {resume} begins again"
    saved(path / "snapshots", 1, 2)
    err = call(capfd, "run", "--resume", "fails")[2]
    assert err.splitlines()[-1] == f"continue: {resume} (from step-2)"
    assert call(capfd, "snapshots", "list", "fails")[1].count("\nstep-") == 2
    assert call(capfd, "snapshots", "verify", "fails")[0] == 0
    assert call(capfd, "snapshots", "diff", "fails", str(path / "snapshots" / "step-2"))[0] == 0
    assert call(capfd, "snapshots", "export", "fails", "out.safetensors")[0] == 0


def test_the_name_of_an_unfinished_run_is_refused_where_nobody_can_be_asked(folder, capfd):
    first = killed(folder, "--name", "x", "train.py")
    code, out, err = call(capfd, "run", "--name", "x", "train.py")
    where = first.run_dir.relative_to(folder)
    assert (code, out) == (2, "")
    assert (
        "the run 'x' has not finished (killed, or its machine went down; without a snapshot) [unfinished-run]"
        in err
    )
    assert f"rankup run --resume {where}; or start a new run under another --name" in err
    assert call(capfd, "run", "train.py")[0] == 0  # nobody is asked about a name that was not given
    # A run that failed by itself and saved nothing has nothing to go on from.
    script(folder, "raise SystemExit(3)", "fails.py")
    for _ in range(2):
        assert call(capfd, "run", "--name", "y", "fails.py")[0] == 1


@pytest.mark.parametrize(("answer", "runs"), [(b"y\n", 1), (b"n\n", 2)])
def test_on_a_terminal_it_asks(folder, answer, runs):
    killed(folder, "--name", "x", "train.py")
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        command = [sys.executable, "-m", "rankup", "run", "--name", "x", "train.py"]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
        assert process.wait(60) == 0
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "resume it?" in shown
    assert len(list(folder.glob("runs/x/*"))) == runs
    assert f"start {3 - runs}" in shown


def test_a_run_in_another_terminal_is_seen_and_cancelled_as_by_ctrl_c(folder, capfd):
    script(
        folder,
        "import time\ntry: time.sleep(999)\nexcept KeyboardInterrupt: print('told', flush=True); raise",
        "waits.py",
    )
    run = Started(folder, "--name", "x", "--nproc-per-node", "1", "waits.py")
    path = None
    deadline = time.monotonic() + 240
    while path is None or not (path / "logs" / "events.jsonl").exists():
        path = next(folder.glob("runs/x/*"), None)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    code, out, _ = call(capfd, "status")
    assert "local  x     running" in out
    assert call(capfd, "run", "--resume", "x")[2].splitlines()[0].endswith("[still-running]")
    assert call(capfd, "cancel", "x")[:2] == (0, f"{path.relative_to(folder)}: cancelled\n")
    run.end()
    assert (run.code, run.outcome["outcome"]) == (130, "cancelled")
    assert "told" in run.out
    assert "cancelled" in call(capfd, "status", "x")[1]
    assert "has already ended" in call(capfd, "cancel", "x")[1]


def test_logs_print_what_the_terminal_showed_and_one_ranks_lines(folder, capfd):
    script(
        folder, "import os, sys; print('out', os.environ['RANK']); print('err', file=sys.stderr)", "says.py"
    )
    code, out, err = call(capfd, "run", "--nproc-per-node", "2", "--name", "two", "says.py")
    assert code == 0, err
    lines = call(capfd, "logs", "two")[1].splitlines()
    assert sorted(lines) == ["[rank 0] err", "[rank 0] out 0", "[rank 1] err", "[rank 1] out 1"]
    assert sorted(call(capfd, "logs", "two", "--rank", "1")[1].splitlines()) == ["err", "out 1"]
    code, out, _ = call(capfd, "logs", "-f", "two")
    assert (code, len(out.splitlines())) == (0, 4)
    (answer,) = json.loads(call(capfd, "status", "last", "--json")[1])
    assert (answer["name"], answer["state"], answer["code"]) == ("two", "done", 0)


def test_resume_of_a_run_that_was_not_submitted_says_what_to_type(folder, capfd):
    first = killed(folder, "train.py")
    code, _, err = call(capfd, "resume", "train")
    assert code == 2 and "[local-run]" in err
    assert f"rankup run --resume {first.run_dir.relative_to(folder)}" in err


@pytest.mark.parametrize(("snapshot", "kept"), [(True, "a"), (False, "bad")])
def test_arguments_that_do_not_fit_the_snapshot_are_forgotten(folder, capfd, snapshot: bool, kept: str):
    path = killed(folder, "--name", "x", "train.py", "a").run_dir
    if snapshot:
        saved(path / "snapshots", 1)
    (folder / "train.py").write_text(COUNTING + "sys.exit('bad' in sys.argv)\n")
    code, *_ = call(capfd, "run", "--resume", "x", "train.py", "bad")
    assert code == 1
    call(capfd, "run", "--resume", "x")
    assert (path / "starts").read_text().splitlines() == ["a", "bad", kept]
