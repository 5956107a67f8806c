"""An earlier examination shows what is slower now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from clusters import facts, healthy

from rankup.doctor.judges.before import compare, read_before
from rankup.doctor.verdict import Examination
from rankup.errors import RankupError


def kept(path: Path, cluster: dict) -> Path:
    path.write_text(json.dumps(Examination(facts(cluster), [], 1.0).as_dict()))
    return path


def test_the_same_cluster_is_as_fast_as_before(tmp_path: Path):
    before = read_before(kept(tmp_path / "a.json", healthy(4)))
    assert list(compare(before, facts(healthy(4)))) == []


def test_the_host_that_is_slower_is_named(tmp_path: Path):
    before = read_before(kept(tmp_path / "a.json", healthy(4)))
    now = healthy(4)
    now["nodes"][2]["network"]["sends"] = {"3": 4e8}
    (finding,) = compare(before, facts(now))
    assert (finding.code, finding.place) == ("slower-than-before", "node3")
    assert "400 MB/s, before 1,100 MB/s" in finding.message


def test_other_hosts_are_compared_with_what_was_usual(tmp_path: Path):
    before = read_before(kept(tmp_path / "a.json", healthy(2)))
    now = healthy(2)
    now["hosts"] = ("other1", "other2")
    assert list(compare(before, facts(now))) == []
    now["nodes"][1]["shared"]["write_rate"] = 1e8
    (finding,) = compare(before, facts(now))
    assert finding.place == "other2"


def test_versions_that_have_changed_are_information(tmp_path: Path):
    before = read_before(kept(tmp_path / "a.json", healthy(2)))
    now = healthy(2)
    for parts in now["nodes"].values():
        parts["software"]["torch"] = "2.8.0"
    (finding,) = compare(before, facts(now))
    assert (finding.code, finding.message) == ("version-changed", "torch is 2.8.0, before 2.7.0")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"rankup_doctor": 1}', '{"rankup_doctor": 1, "nodes": []}']
)
def test_a_file_that_is_no_examination(tmp_path: Path, text: str):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(RankupError, match=r"cannot compare with a\.json"):
        read_before(tmp_path / "a.json")
