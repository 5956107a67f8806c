"""The real failures in ``logs/`` (made by ``produce``): the root is named first in each."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rankup.explain.explain_logs import explain_logs
from rankup.explain.explanation import explanation_lines
from rankup.explain.signatures.match import SIGNATURES

LOGS = Path(__file__).parent / "logs"
CASES = sorted(path for path in LOGS.iterdir() if path.is_dir())


def logs_of(case: Path) -> list[Path]:
    return sorted(path for path in case.iterdir() if path.name != "expected.json")


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_the_root_is_named_first(case):
    """And what is quoted is in the log under its number."""
    expected = json.loads((case / "expected.json").read_text())
    found, _ = explain_logs(logs_of(case))
    if not expected["signature"]:
        assert found is None
        return
    assert found is not None
    assert (found.code, found.rank) == (expected["signature"], expected["rank"])
    assert any(expected["quote"] in quote.text for quote in found.quotes)
    for quote in found.quotes:
        line = (case / quote.file).read_bytes().split(b"\n")[quote.line - 1].decode(errors="replace")
        assert quote.text.strip() in re.sub(r"\x1b\[\d*m", "", line)


def test_at_least_fifty_failures_were_really_produced():
    assert len(CASES) >= 50


def test_logs_hold_no_names_of_the_machine_that_made_them():
    for path in LOGS.rglob("*.*"):
        text = path.read_text()
        assert "/work/" not in text and "/var/tmp/" not in text and "rankup-lab" not in text, path


def test_what_is_printed():
    found, _ = explain_logs(logs_of(LOGS / "srun-label-one-rank-raises"))
    assert explanation_lines(found)[:5] == [
        "rank 3 on node02 failed first: AssertionError: loss is nan at step 3 [python-exception]",
        '  job.log:2: 3: [rank3]:   File "/home/user/project/train.py", line 11, in <module>',
        '  job.log:3: 3: [rank3]:     assert not (rank == 3 and step == 3), "loss is nan at step 3"',
        "  job.log:5: 3: [rank3]: AssertionError: loss is nan at step 3",
        "  why:   the script raised an exception that nothing caught",
    ]
    assert explanation_lines(found)[-1].startswith(
        "  then:  ranks 0-2: the connection to another rank was lost"
    )


@pytest.mark.parametrize("case", ["bare-killed", "cgroup-out-of-memory", "one-rank-killed"])
def test_a_bare_kill_is_not_called_out_of_memory(case):
    found, _ = explain_logs(logs_of(LOGS / case))
    assert "memory" not in found.message
    assert found.confidence.value == "likely"


def test_every_signature_of_the_fixtures_is_in_the_tables():
    names = {signature.name for signature in SIGNATURES} | {"python-exception", "unknown", ""}
    for case in CASES:
        assert json.loads((case / "expected.json").read_text())["signature"] in names
