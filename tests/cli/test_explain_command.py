"""``rankup explain`` on the command line: logs, runs, JSON, exit codes; and the line that offers it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import calling
from rankup.explain.explain_logs import explain_run
from rankup.explain.run_directory import read_run
from rankup_process import script

LOGS = Path(__file__).parents[1] / "explain" / "logs"
pytestmark = pytest.mark.usefixtures("warm_python")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


call = calling()


def test_a_log_of_anybody(capfd):
    code, out, _ = call(capfd, "explain", LOGS / "srun-label-one-rank-raises" / "job.log")
    assert code == 1
    assert out.startswith(
        "rank 3 on node02 failed first: AssertionError: loss is nan at step 3 [python-exception]\n"
    )


def test_a_folder_of_logs_and_json(capfd):
    code, out, _ = call(capfd, "explain", "--json", LOGS / "files-per-rank")
    failure = json.loads(out)["failure"]
    assert (code, failure["code"], failure["rank"]) == (1, "python-exception", 1)
    assert failure["quotes"][-1] == {
        "file": "rank-1.err",
        "line": 6,
        "text": "[rank1]: ZeroDivisionError: division by zero",
    }


def test_a_log_without_failure(capfd, tmp_path):
    log = tmp_path / "job.log"
    log.write_text((LOGS / "no-failure" / "job.log").read_text() + "Training finished.\n")
    assert call(capfd, "explain", log)[:2] == (0, "no failure in the logs\n")
    answer = json.loads(call(capfd, "explain", "--json", log)[1])
    assert answer == {"failure": None, "notes": [], "last": None}


def test_a_log_that_stops_in_the_middle_is_not_called_healthy(capfd):
    log = LOGS / "no-failure" / "job.log"
    code, out, _ = call(capfd, "explain", log)
    head, last, *_ = out.splitlines()
    assert (code, head) == (0, "no failure in the logs, and no end of the job")
    assert last == "  job.log:9: accuracy 0.97, 0 errors"
    assert json.loads(call(capfd, "explain", "--json", log)[1])["last"] == last.strip()


@pytest.mark.parametrize(
    ("targets", "error"),
    [(["none.log"], "no-such-log"), (["a.log", "b.log"], "no-log"), ([], "no-runs"), (["."], "no-log")],
)
def test_nothing_to_read_is_wrong_usage(capfd, targets, error):
    code, out, err = call(capfd, "explain", *targets)
    assert (code, out) == (2, "")
    assert f"[{error}]" in err and "Traceback" not in err


def test_a_failed_run_offers_it_and_is_explained(folder, capfd):
    script(
        folder,
        "import os, time\nif os.environ['RANK'] == '1':\n    open('data/train.bin')\ntime.sleep(999)\n",
        "train.py",
    )
    code, _, err = call(capfd, "run", "--nproc-per-node", "2", "train.py")
    (path,) = folder.glob("runs/train/*")
    offer = f"explain: rankup explain {path.relative_to(folder)}"
    assert (code, err.splitlines()[-2]) == (1, offer)
    assert offer.removeprefix("explain: ") in call(capfd, "status", "train")[1]
    code, out, _ = call(capfd, "explain")
    assert code == 1
    assert out.splitlines()[0] == "rank 1 failed first: a file is missing [file-not-found]"
    assert "rank-1.err:4: FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'" in out


def test_a_run_that_is_done_has_no_failure(folder, capfd):
    script(folder, "print('accuracy 0.9')\n", "train.py")
    assert call(capfd, "run", "train.py")[0] == 0
    assert call(capfd, "explain", "train")[:2] == (0, "no failure in the logs\n  note:  the run is done\n")


def test_what_an_attempt_survived_is_no_failure_of_a_run_that_is_done_or_goes_on(tmp_path):
    """A job was requeued, cancelled, lost a node, and resumed: its log has all of that."""
    log = tmp_path / "job.log"
    log.write_text(
        "==== rankup: attempt 1, job 7, 2026-03-01 12:00:00, n1 ====\n"
        "slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-03-01T12:10:00 DUE TO NODE FAILURE ***\n"
        "RuntimeError: CUDA out of memory.\n"
        "==== rankup: attempt 2, job 7, 2026-03-01 12:20:00, n2 ====\n"
        "epoch 1\n"
    )

    def explained():
        return explain_run(read_run(tmp_path / "logs", (log,), (tmp_path,))).failure

    assert explained() is None
    with log.open("a") as file:
        file.write("RuntimeError: CUDA out of memory.\n")
    assert explained().code == "cuda-out-of-memory"
    (tmp_path / "outcome").write_text("done")
    assert explained() is None


def test_an_empty_log_is_no_healthy_one(tmp_path, capfd):
    log = tmp_path / "job.log"
    log.touch()
    code, out, err = call(capfd, "explain", log)
    assert (code, out) == (2, "")
    assert "there is nothing in the log [empty-log]" in err
