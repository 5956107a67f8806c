"""``rankup report`` as a user meets it: of a study, of runs, and of what is neither."""

from __future__ import annotations

import json

import pytest

from rankup.cli.app import main
from rankup.cli.commands import report as command
from rankup.core.rundir import RunDir
from rankup.findings.finding import Finding, Severity
from rankup.scale.journal import Journal, StudyPlan
from rankup.scale.results import Configuration, StudyResults
from report_inputs import study, write_run, write_study
from scale.studies import leave_records


def call(*args) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["report", *map(str, args)])
    return int(ended.value.code or 0)


def failed(capsys, *args) -> str:
    assert call(*args) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return said.err


def _failure(code: str, message: str) -> dict:
    return Finding(code, Severity.ERROR, message).as_dict()


@pytest.fixture
def undrawn(monkeypatch):
    """Without figures, whose drawing takes seconds."""
    monkeypatch.setattr("rankup.scale.report.write.all_pictures", lambda content: [])


@pytest.mark.slow
def test_a_study_is_reported_in_its_directory_with_its_findings(tmp_path, capsys):
    folder = write_study(tmp_path / "study", study((1, 2), repeats=2))
    assert call(folder, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert "few-repeats" in [finding["code"] for finding in said["findings"]]
    assert said["report"] == str(folder / "report" / "report.html")
    assert "few-repeats" in (folder / "report" / "report.html").read_text()
    for name in said["figures"]:
        assert {path.suffix for path in (folder / "report" / "figures").glob(f"{name}.*")} == {
            ".svg",
            ".pdf",
            ".png",
        }
    for name in said["tables"]:
        assert {path.suffix for path in (folder / "report" / "tables").glob(f"{name}.*")} == {
            ".csv",
            ".md",
            ".tex",
        }


@pytest.mark.usefixtures("undrawn")
def test_the_results_file_names_its_study_too(tmp_path, capsys):
    folder = write_study(tmp_path / "study", study((1, 2)))
    assert call(folder / "results.json", "--out", tmp_path / "out", "--title", "Ours") == 0
    assert "<h1>Ours</h1>" in (tmp_path / "out" / "report.html").read_text()
    assert "2 processes train 1.8 times as fast as 1 process" in capsys.readouterr().out


@pytest.mark.usefixtures("undrawn")
def test_any_runs_are_reported_and_one_without_records_is_a_finding(tmp_path, capsys):
    good = write_run(tmp_path / "bert" / "a", steps=5)
    (tmp_path / "bert" / "b" / "records").mkdir(parents=True)
    assert call(good, tmp_path / "bert" / "b", "--out", tmp_path / "out") == 0
    said = capsys.readouterr()
    assert "The run ended after 1.0 s of training" in said.out
    assert "warning: the run 'b' has no records [no-records]" in said.err


@pytest.mark.usefixtures("undrawn")
def test_a_study_with_a_failed_cell_reports_the_others(tmp_path, capsys):
    good = study((1, 2))
    crashed = Configuration(
        {"nproc": 4}, [], _failure("out-of-memory", "nproc=4 failed: the process was killed")
    )
    folder = write_study(
        tmp_path / "study",
        StudyResults("mnist-cnn", "strong", [*good.configurations, crashed], {}, 3),
    )
    assert call(folder) == 0
    said = capsys.readouterr()
    assert "Failed: nproc=4." in said.out
    assert "nproc=4 failed: the process was killed [out-of-memory]" in said.err


@pytest.mark.usefixtures("undrawn")
def test_a_study_of_which_nothing_ran_says_so(tmp_path, capsys):
    crashed = Configuration({"nproc": 4}, [], _failure("x", "it fell over"))
    folder = write_study(tmp_path / "study", StudyResults("mnist-cnn", "strong", [crashed], {}, 3))
    assert call(folder) == 0
    assert "Nothing ran to its end" in capsys.readouterr().out


def test_runs_without_records_are_an_error(tmp_path, capsys):
    (tmp_path / "run" / "records").mkdir(parents=True)
    assert "the run 'run' has no records [no-records]" in failed(capsys, tmp_path / "run")


def test_results_of_another_version_are_an_error(tmp_path, capsys):
    folder = write_study(tmp_path / "study", study((1,)))
    path = folder / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 1}))
    assert "[other-version]" in failed(capsys, folder)


def test_results_that_are_cut_short_are_an_error(tmp_path, capsys):
    folder = write_study(tmp_path / "study", study((1,)))
    path = folder / "results.json"
    path.write_text(path.read_text()[:-100])
    assert "[bad-results]" in failed(capsys, folder)


def test_two_studies_are_an_error(tmp_path, capsys):
    folders = [write_study(tmp_path / name, study((1,))) for name in "ab"]
    assert "[several-studies]" in failed(capsys, *folders)


def test_a_run_that_does_not_exist_is_an_error(tmp_path, capsys):
    assert "[no-runs]" in failed(capsys, "bret", "--runs-root", tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_a_place_that_is_a_file_is_an_error(tmp_path, capsys):
    run = write_run(tmp_path / "a", steps=2)
    (tmp_path / "out").touch()
    assert "[unwritable-directory]" in failed(capsys, run, "--out", tmp_path / "out")


@pytest.mark.usefixtures("undrawn")
def test_a_file_in_the_way_is_an_error(tmp_path, capsys):
    run = write_run(tmp_path / "a", steps=2)
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    assert "[unwritable-report]" in failed(capsys, run, "--out", tmp_path / "out")


def test_without_matplotlib_the_error_names_the_extra(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    said = failed(capsys, tmp_path)
    assert "[no-matplotlib]" in said and "rankup[report]" in said


@pytest.mark.usefixtures("undrawn")
def test_an_interrupted_study_is_reported_as_far_as_it_has_come(tmp_path, capsys):
    folder = tmp_path / "study"
    journal = Journal.create(folder, StudyPlan(command=["train.py"], grid={"nproc": (1, 2)}))
    for trial in journal.plan.order[:3]:  # two warm-ups, and one measured run
        run = RunDir.create(tmp_path, f"run{trial.processes}-{trial.repeat}")
        leave_records(run, trial.processes, 4.0)
        journal.began(trial, run.path)
        journal.ended(trial)
    journal.close()
    assert call(folder, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    found = {finding["code"]: finding["message"] for finding in said["findings"]}
    assert found["unfinished-study"] == "3 of 8 runs have ended, warm-ups included"
    assert "One configuration ran" in said["summary"][0]
