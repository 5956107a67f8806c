"""Submitted runs are found again: by directory, id, job or name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankup.batch.store import all_runs, find, load
from rankup.errors import RankupError
from rankup.resolve.job_toml import job_toml
from rankup.resolve.resolved import Resolved
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec


@pytest.fixture
def runs(tmp_path):
    """Three runs, submitted in this order: a/1 (job 7), b/2 (job 8.head), a/3 (job 9[].head, an array)."""
    for when, (name, ident, job, array) in enumerate(
        [("a", "1", "7", ""), ("b", "2", "8.head", ""), ("a", "3", "9[].head", "0-1")]
    ):
        folder = tmp_path / "runs" / name / ident
        (folder / "logs").mkdir(parents=True)
        spec = JobSpec(command=("true",), name=name, folder=tmp_path, array=array)
        origin = dict.fromkeys([*JobSpec.model_fields, "site"], "default")
        (folder / "job.toml").write_text(job_toml(Resolved(spec, Site(name="s", scheduler="pbs"), origin)))
        (folder / "jobs").write_text(job + "\n")
        os.utime(folder / "job.toml", (when, when))
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("", "3"),
        ("a", "3"),
        ("b", "2"),
        ("1", "1"),
        ("7", "1"),
        ("8", "2"),
        ("8.head", "2"),
        ("9[1].head", "3"),
    ],
)
def test_what_a_target_means(runs, target, found):
    assert find(target, runs).run.path.name == found


def test_the_folder_of_a_name_means_its_latest_run(runs, monkeypatch):
    """Where a shell's completion of ``runs/`` stops first."""
    monkeypatch.chdir(runs.parent)
    assert [find(target, Path("runs")).run.path.name for target in ("runs/a", "runs/a/", "runs/b")] == [
        "3",
        "3",
        "2",
    ]
    with pytest.raises(RankupError, match="no run with the name or id 'runs'"):
        find("runs", Path("runs"))


def test_a_directory_needs_no_root(runs, monkeypatch):
    monkeypatch.chdir(runs / "a" / "1")
    run = find(".", Path("elsewhere"))
    assert (run.run.path, run.ids(), run.site, run.scheduler) == (runs / "a" / "1", ("7",), "s", "pbs")


def test_a_damaged_run_hides_no_other(runs):
    (runs / "a" / "1" / "job.toml").write_text("[job")
    assert [run.run.path.name for run in all_runs(runs)] == ["2", "3"]
    with pytest.raises(RankupError):
        load(runs / "a" / "1")


@pytest.mark.parametrize(
    ("target", "task", "ids"),
    [
        ("9", None, ("9[].head", "12.head")),
        ("9[].head", None, ("9[].head", "12.head")),
        ("9[0]", 0, ("9[0].head",)),
        ("9[1].head", 1, ("9[1].head", "12.head")),
        ("9_1", 1, ("9[1].head", "12.head")),
        ("12", 1, ("9[1].head", "12.head")),  # task 1 goes on as a job of its own
    ],
)
def test_the_id_of_a_task_means_that_task_alone(runs, target, task, ids):
    (runs / "a" / "3" / "jobs").write_text("9[].head\n12.head 1\n")
    found = find(target, runs)
    assert (found.task, found.ids()) == (task, ids)
    assert list(found.tasks()) == ([0, 1] if task is None else [task])


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("nothing", "no-such-run"),
        ("77", "no-such-run"),
        ("8.other", "no-such-run"),
        ("9_5", "no-such-task"),
        ("7_0", "no-such-task"),
        ("9_", "no-such-run"),
        ("9_[0-1]", "no-such-run"),
    ],
)
def test_what_is_not_there_is_one_error(runs, target, code):
    with pytest.raises(RankupError) as caught:
        find(target, runs)
    assert caught.value.code == code


def test_two_runs_with_the_same_job_have_to_be_told_apart(runs):
    (runs / "b" / "2" / "jobs").write_text("7\n")
    with pytest.raises(RankupError) as caught:
        find("7", runs)
    assert caught.value.code == "several-runs"
    assert str(runs / "a" / "1") in caught.value.context


def test_a_directory_without_a_job_says_what_it_lacks(tmp_path):
    with pytest.raises(RankupError) as caught:
        find(str(tmp_path), tmp_path / "runs")
    assert caught.value.code == "not-submitted"


@pytest.mark.parametrize(("target", "task"), [("a", 5), ("b", 0)])
def test_logs_of_a_task_that_is_not_there(runs, target, task):
    with pytest.raises(RankupError) as caught:
        find(target, runs).logs(task)
    assert caught.value.code == "no-such-task"
