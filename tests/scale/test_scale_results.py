"""results.json that is damaged, of another version, or written by hand: one sentence, and no traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from studies import configuration, leave_records, study

from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.scale.plan import Trial
from rankup.scale.read_run import read_run
from rankup.scale.results import read_results, write_results


@pytest.fixture
def path(tmp_path) -> Path:
    made = tmp_path / "results.json"
    write_results(study(configuration(1, 10.0)), made)
    return made


def test_what_is_written_is_read(path):
    written = json.dumps(study(configuration(1, 10.0)).as_dict())
    assert json.dumps(read_results(path).as_dict()) == written


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seconds", 0), ("seconds", "abc"), ("seconds", None), ("nodes", 0), ("processes", 1.5), ("threads", True),
        ("samples", -1), ("breakdown", None), ("breakdown", {"compute": "x"}), ("facts", 3), ("accuracy", "high"),
        ("facts", {"test_samples": "many"}), ("epochs", [{"epoch": 1, "seconds": "x"}]), ("epochs", 3),
        ("epochs", [{"epoch": 1, "seconds": 1.0, "metrics": {"loss": "x"}}]), ("unknown", 1),
    ],
)  # fmt: skip
def test_a_damaged_run_is_refused(path, field, value):
    given = json.loads(path.read_text())
    given["configurations"][0]["runs"][0][field] = value
    refused(path, given)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("machine", None), ("machine", {"cpu_count": "two"}), ("scaling", "odd"), ("repeats", "three"),
        ("load_before", "low"), ("configurations", 5), ("configurations", [{"runs": []}]),
        ("configurations", [{"asked": 3, "runs": []}]),
    ],
)  # fmt: skip
def test_a_damaged_study_is_refused(path, field, value):
    refused(path, {**json.loads(path.read_text()), field: value})


def test_a_missing_field_is_named(path):
    given = json.loads(path.read_text())
    del given["configurations"][0]["runs"][0]["seconds"]
    assert "'seconds'" in refused(path, given)
    del given["target"]
    refused(path, given)


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"version": 2, "configurations": ['])
def test_what_is_no_study_is_refused(path, text):
    path.write_text(text)
    with pytest.raises(RankupError) as caught:
        read_results(path)
    assert caught.value.code == "bad-results"


def refused(path: Path, given: object) -> str:
    path.write_text(json.dumps(given))
    with pytest.raises(RankupError) as caught:
        read_results(path)
    assert caught.value.code == "bad-results" and caught.value.context == str(path)
    return caught.value.message


@pytest.mark.parametrize(
    ("word", "other"), [('"warm_seconds"', '"w"'), ('"warm_seconds": ', '"warm_seconds": "x", "w": ')]
)
def test_records_that_were_changed_by_hand_are_a_failure_of_the_run(tmp_path, word, other):
    run = RunDir.create(tmp_path, "trials")
    leave_records(run, seconds=10)
    file = run.records / "steps.jsonl"
    text = file.read_text()
    assert word in text
    file.write_text(text.replace(word, other))
    with pytest.raises(RankupError) as caught:
        read_run(Trial((("nproc", 1),), 1), run)
    assert caught.value.code == "damaged-records"
