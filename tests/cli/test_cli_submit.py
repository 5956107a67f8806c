"""``rankup submit`` and ``render`` from their command lines, against a pretend SLURM."""

from __future__ import annotations

import json
import os
import sys

import pytest

from commands import calling
from fake_slurm import FakeSlurm


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RANKUP_SITE", raising=False)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text("print('hello')\n")
    return FakeSlurm(tmp_path, monkeypatch)


run = calling()


SUBMIT = ("submit", "--time", "1h", "--name", "mine")


def test_submit_says_the_job_its_directory_and_how_to_follow_and_cancel_it(slurm, capfd, tmp_path):
    code, out, _ = run(capfd, *SUBMIT, "train.py", "--lr", "0.1")
    (path,) = (tmp_path / "work").glob("runs/mine/*")
    short = path.relative_to(tmp_path / "work")
    assert code == 0
    assert out.splitlines() == [
        "job 101 submitted (slurm)",
        f"  run directory  {short}",
        f"  follow         rankup logs -f {short}",
        f"  cancel         rankup cancel {short}",
    ]
    assert (path / "job.sh").exists()


def test_json_leaves_stdout_to_the_answer(slurm, capfd):
    code, out, _ = run(capfd, *SUBMIT, "--json", "train.py")
    answer = json.loads(out)
    assert (code, answer["job"], answer["jobs"], answer["site"]) == (0, "101", ["101"], "slurm")
    assert isinstance(answer["findings"], list)


def test_a_dry_run_shows_the_script_and_the_command_and_leaves_nothing(slurm, capfd, tmp_path):
    code, out, _ = run(capfd, *SUBMIT, "--dry-run", "train.py")
    assert code == 0
    assert out.startswith("#!/bin/bash\n#SBATCH ")
    assert "sbatch --parsable" in out.splitlines()[-1]
    assert not slurm.calls("sbatch") and not (tmp_path / "work" / "runs").exists()


def test_what_is_surely_wrong_stops_before_the_queue_unless_forced(slurm, capfd, tmp_path):
    args = (*SUBMIT, "--venv", str(tmp_path / "nowhere"))
    code, _, err = run(capfd, *args, "train.py")
    assert code == 1
    assert "[missing-venv]" in err
    assert err.splitlines()[-1] == (
        "rankup: 1 error, 1 warning: not submitted; --ignore missing-venv leaves this out, --force submits in spite "
        "of all errors"
    )
    assert not slurm.calls("sbatch") and not list((tmp_path / "work").glob("runs/*"))
    assert run(capfd, *args, "--force", "train.py")[0] == 0
    assert run(capfd, *args, "--ignore", "missing-venv", "train.py")[0] == 0
    assert len(slurm.calls("sbatch")) == 2


def test_a_job_that_would_fail_is_json_with_its_findings_where_json_was_asked_for(slurm, capfd, tmp_path):
    code, out, _ = run(capfd, *SUBMIT, "--json", "--venv", str(tmp_path / "nowhere"), "train.py")
    answer = json.loads(out)
    assert (code, answer["exit_code"], answer["error"]) == (1, 1, "missing-venv")
    assert [f["code"] for f in answer["findings"] if f["severity"] == "error"] == ["missing-venv"]


# A wrong value, a limit of the site, a key that it requires, a program, a variable; and advice beside them.
MISTAKES = (
    *("--site", "olivia", "--time", "90", "--gpus-per-node", "8", "--env", "TOKEN"),
    *("--container", "/nowhere/image.sif"),
    "trian.py",
)
CODES = [
    *(
        "bad-time",
        "script-not-found",
        "unset-secret",
        "missing-account",
        "impossible-size",
        "missing-container",
    ),
]


@pytest.mark.parametrize("command", ["submit", "render"])
def test_all_mistakes_of_a_job_are_drawn_at_once_the_worst_first(slurm, capfd, monkeypatch, command):
    monkeypatch.delenv("TOKEN", raising=False)
    code, out, err = run(capfd, command, *MISTAKES)
    heads = [line for line in err.splitlines() if line.startswith(("error: ", "warning: ", "note: "))]
    assert code == 2 and out == ""
    assert [line.split("[")[-1].rstrip("]") for line in heads[: len(CODES)]] == CODES
    severities = [line.split(":")[0] for line in heads]
    assert severities == sorted(severities, key=("error", "warning", "note").index)
    assert severities.count("error") == len(CODES) and severities[-1] == "note"
    assert "did you mean 'train.py'" in err and err.splitlines()[-1].startswith("rankup: 6 errors")
    assert not slurm.calls("sbatch")


@pytest.mark.parametrize("command", ["submit", "render"])
def test_all_mistakes_of_a_job_are_in_the_json(slurm, capfd, monkeypatch, command):
    monkeypatch.delenv("TOKEN", raising=False)
    code, out, err = run(capfd, command, "--json", *MISTAKES)
    answer = json.loads(out)
    assert (code, answer["exit_code"], answer["error"], err) == (2, 2, "bad-time", "")
    assert [f["code"] for f in answer["findings"] if f["severity"] == "error"] == CODES
    assert answer["findings"][0]["place"] == ""


def test_what_is_ignored_is_not_drawn_and_an_unknown_code_is_an_error(slurm, capfd):
    assert "[no-time]" not in run(capfd, "render", "--ignore", "no-time", "train.py")[2]
    code, _, err = run(capfd, "render", "--ignore", "no-tme", "train.py")
    assert code == 2 and "did you mean 'no-time'" in err


@pytest.mark.parametrize(
    ("words", "code", "flag"),
    [
        ("sbatch: error: Invalid partition name specified", "unknown-queue", "--partition"),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", "scheduler-unreachable", ""),
    ],
)
def test_a_refusal_is_one_sentence_that_names_the_flag(slurm, capfd, tmp_path, words, code, flag):
    slurm.has("refuses", words)
    ended, out, err = run(capfd, *SUBMIT, "--partition", "gpux", "train.py")
    assert ended in (1, 2) and out == ""
    assert f"[{code}]" in err and flag in err and "Traceback" not in err
    assert not list((tmp_path / "work").glob("runs/*"))


def test_runs_that_cannot_be_written_are_an_error_before_the_queue(slurm, capfd, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run(capfd, *SUBMIT, "--runs-root", str(tmp_path / "file" / "runs"), "train.py")
    assert code == 2 and "[unwritable-directory]" in err
    assert not slurm.calls("sbatch")


def test_explain_config_only_explains(slurm, capfd):
    code, out, _ = run(capfd, *SUBMIT, "--explain-config", "train.py")
    assert code == 0 and "flag" in out
    assert not slurm.calls("sbatch")


def test_interactive_becomes_the_schedulers_client(slurm, capfd, tmp_path, monkeypatch):
    became = []
    monkeypatch.setattr(os, "execvpe", lambda *call: became.append(call) or exit(0))
    run(capfd, *SUBMIT, "--interactive", "--nodes", "2")
    ((program, command, env),) = became
    assert program == "salloc" and "--nodes=2" in command
    assert not (tmp_path / "work" / "runs").exists()


def test_a_dry_run_of_an_interactive_job_shows_the_command(slurm, capfd):
    code, out, _ = run(capfd, *SUBMIT, "--interactive", "--dry-run", "--nodes", "2")
    assert code == 0 and out.startswith("salloc ") and "--nodes=2" in out
    assert not slurm.calls("salloc")


def test_a_job_that_waits_for_one_that_nobody_knows_is_refused(slurm, capfd):
    code, _, err = run(capfd, *SUBMIT, "--after", "4711", "train.py")
    assert code == 1 and "the scheduler does not know the job 4711 [unknown-job]" in err
    assert not slurm.calls("sbatch")
    assert run(capfd, *SUBMIT, "--after", "4711", "--ignore", "unknown-job", "train.py")[0] == 0


def test_interactive_without_the_scheduler_is_one_error(slurm, capfd, monkeypatch):
    monkeypatch.setenv("PATH", str(slurm.folder))  # where there is no salloc
    code, _, err = run(capfd, *SUBMIT, "--interactive", "--python", sys.executable, "train.py")
    assert code == 2 and "[scheduler-missing]" in err


def test_a_followed_job_gives_its_own_code(slurm, capfd, monkeypatch):
    monkeypatch.setattr("rankup.batch.follow.LOOK_AT_FILES_S", 0.01)
    monkeypatch.setattr("rankup.batch.follow.LAST_LINES_S", 0.01)
    # The job runs when it is submitted: what its script would have left.
    sbatch = slurm.folder / "sbatch"
    sbatch.write_text(
        sbatch.read_text()
        + 'RUN=$(dirname "${@: -1}"); echo hello >"$RUN/logs/job.log"; echo 1 101 0 n >"$RUN/attempts"\n'
        + 'echo failed >"$RUN/outcome"; echo 7 >"$RUN/exit_code"\n'
    )
    code, out, err = run(capfd, *SUBMIT, "--follow", "train.py")
    assert code == 7
    assert out.splitlines()[-1] == "hello"
    assert "rankup: job 101 failed: exit code 7" in err


def test_render_prints_the_script_and_nothing_else(slurm, capfd, tmp_path):
    code, out, err = run(capfd, "render", "--time", "1h", "--run-dir", "there", "train.py")
    assert code == 0
    assert out.startswith("#!/bin/bash\n") and str(tmp_path / "work" / "there") in out
    assert not slurm.calls("sbatch") and not (tmp_path / "work" / "runs").exists()


def test_render_says_what_may_go_wrong_on_stderr(slurm, capfd):
    _, out, err = run(capfd, "render", "train.py")
    assert "[no-time]" in err and "[no-time]" not in out
    findings = json.loads(run(capfd, "render", "--json", "train.py")[1])["findings"]
    assert "no-time" in [finding["code"] for finding in findings]


def test_what_the_profile_tells_its_users_is_shown_beside_the_script(slurm, capfd):
    args = ("--site", "olivia", "--account", "a", "--time", "1h", "--gpus-per-node", "1", "train.py")
    missing = ("--container", "/nowhere/image.sif")
    code, out, err = run(capfd, "render", *missing, *args)
    assert code == 1 and "[missing-container]" in err and out.startswith("#!/bin/bash")
    assert run(capfd, "render", "--ignore", "missing-container", *missing, *args)[0] == 0
    assert run(capfd, "render", *args)[0] == 0  # the site's own image is not looked for on another machine
    assert "note: olivia: The image is built for aarch64" in err and "The image is built" not in out
    assert "The image is built" in json.loads(run(capfd, "render", "--json", *args)[1])["notes"][0]


def test_a_job_that_its_partition_never_starts_is_an_error_before_the_queue(slurm, capfd, tmp_path):
    path = slurm.folder / "sinfo"
    path.write_text("#!/bin/bash\necho 'main*|2|4|1|(null)|1:00:00|1-infinite'\n")
    path.chmod(0o755)
    command = ("submit", "--site", "slurm", "--time", "2h", "train.py")
    code, _, err = run(capfd, *command)
    assert code == 1
    assert "error: the job has --time 02:00:00, and partition main allows 01:00:00 [over-queue-limit]" in err
    assert not slurm.calls("sbatch") and not (tmp_path / "work" / "runs").exists()
    assert run(capfd, command[0], "--ignore", "over-queue-limit", *command[1:])[0] == 0
    assert run(capfd, command[0], "--force", *command[1:])[0] == 0
    assert len(slurm.calls("sbatch")) == 2


def test_blanks_around_a_number_change_nothing(slurm, capfd):
    code, out, _ = run(capfd, "render", "--site", "slurm", "--nodes", " 2 ", "train.py")
    assert code == 0 and "#SBATCH --nodes=2\n" in out
