"""Published tables: honest ones pass, unfair ones are refused for the right reason, the rest compares nothing."""

from __future__ import annotations

import json

import pytest
from pages import HONEST, SILENT, UNFAIR

from rankup.cli.app import main
from rankup.errors import RankupError
from rankup.findings.finding import Severity
from rankup.scale.published.judge import judge
from rankup.scale.published.read import read_published


def findings(tmp_path, suffix, text):
    published = read_published(tmp_path / f"page{suffix}", text)
    return judge(published.curves, published.claims)


def codes(found, severity):
    return {finding.code for finding in found if finding.severity is severity}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_table_passes(name, tmp_path):
    suffix, text, warnings = HONEST[name]
    found = findings(tmp_path, suffix, text)
    assert codes(found, Severity.ERROR) == set()
    assert codes(found, Severity.WARNING) == warnings


@pytest.mark.parametrize("name", UNFAIR)
def test_an_unfair_table_is_refused_for_its_reason(name, tmp_path):
    suffix, text, errors = UNFAIR[name]
    found = findings(tmp_path, suffix, text)
    assert codes(found, Severity.ERROR) == errors
    assert all(f.why and f.place and (f.fix or f.severity is Severity.NOTE) for f in found)


@pytest.mark.parametrize("name", SILENT)
def test_what_compares_no_devices_is_an_error_of_use(name, tmp_path):
    suffix, text = SILENT[name]
    with pytest.raises(RankupError, match="compares no numbers of devices") as caught:
        read_published(tmp_path / f"page{suffix}", text)
    assert caught.value.exit_code == 2
