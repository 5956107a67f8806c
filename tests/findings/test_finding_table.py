"""Findings whose words and limits stand in a table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rankup
from rankup.core.toml_file import read_toml
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.findings.table import FindingTable


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "findings.toml"
    path.write_text(
        '[slow]\nseverity = "warning"\nconfidence = "likely"\nrate = 0.5\n'
        'message = "{place} sends {rate:.1f} MB/s"\nwhy = "a cable"\nfix = "exclude {place}"\n'
    )
    return FindingTable(path)


def test_a_judge_fills_in_the_place_and_its_values(table):
    assert table("slow", "n1", rate=2) == Finding(
        "slow", Severity.WARNING, "n1 sends 2.0 MB/s", "n1", "a cable", "exclude n1", Confidence.LIKELY
    )
    assert table.limits == {"slow": {"rate": 0.5}}


def test_what_a_judge_says_itself_goes_before_the_table_unless_it_is_empty(table):
    found = table("slow", "n1", rate=2, why="", fix="use {this}", severity=Severity.NOTE)
    assert (found.why, found.fix, found.severity) == ("a cable", "use {this}", Severity.NOTE)


@pytest.mark.parametrize(
    "row", ['severity = "fatal"', 'message = "no severity"', 'severity = "note"\nwhyy = ""']
)
def test_a_row_that_is_no_finding_is_an_error(tmp_path, row):
    path = tmp_path / "findings.toml"
    path.write_text(f"[slow]\n{row}\n")
    with pytest.raises(ValueError, match=r"\[slow\] is not a finding"):
        FindingTable(path)


@pytest.mark.parametrize("package", ["doctor/judges", "resolve"])
def test_each_finding_has_a_row_and_each_row_is_found(package):
    folder = Path(rankup.__file__).parent / package
    source = "".join(path.read_text() for path in folder.glob("*.py"))
    rows = read_toml(folder / "findings.toml", "table")
    assert {code for code in rows if f'"{code}"' not in source} == set()
    assert set(re.findall(r'\bfinding\(\s*"([a-z-]+)"', source)) <= set(rows)
