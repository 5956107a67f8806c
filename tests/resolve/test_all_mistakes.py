"""Everything that is wrong with a job is found at once, and nothing that only follows from a wrong value."""

from __future__ import annotations

import pytest

from asking import ask
from rankup.findings.error import FindingsError
from rankup.findings.finding import Severity

# True of these jobs whatever else is wrong with them.
_ADVICE = ("no-time", "few-cores", "node-local-path", "missing-container", "untried-profile", "old-profile")


def mistakes(folder, *command, **asked):
    """The codes of the errors that a job is refused for, in their order."""
    with pytest.raises(FindingsError) as caught:
        ask(folder, *command, **asked)
    assert caught.value.exit_code == 2
    return [f.code for f in caught.value.findings if f.severity is Severity.ERROR]


def test_wrong_values_limits_of_the_site_and_a_missing_program_are_found_together(tmp_path):
    found = mistakes(
        tmp_path,
        "trian.py",
        site="olivia",
        time="90",
        array="x",
        launcher="torchrum",
        gpus_per_node=8,
        mem="1T",
        secrets=("TOKEN",),
    )
    assert sorted(found) == sorted(
        [
            *("bad-time", "bad-array", "bad-launcher"),
            *("script-not-found", "unset-secret", "missing-account", "impossible-size", "impossible-size"),
        ]
    )


def test_each_wrong_value_names_its_flag_and_where_it_came_from(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text('[job]\nscript = "train.py"\ntime = "90"\n')
    with pytest.raises(FindingsError) as caught:
        ask(tmp_path, file=file, nodes=0)
    found = {f.code: (f.message, f.place) for f in caught.value.findings}
    assert found["bad-nodes"] == ("--nodes must be at least 1, got 0", "")  # the message names the flag
    assert found["bad-time"][0].startswith("time: '90'") and found["bad-time"][1] == str(file)


def test_all_mistakes_of_a_job_file_are_found_with_those_of_the_flags(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text('[job]\nscript = "trian.py"\nnods = 2\ngpu = 1\nmem = 32\n[sites]\n[site]\nnam = "x"\n')
    assert sorted(mistakes(tmp_path, file=file, array="x")) == sorted(
        ["unknown-key"] * 4 + ["bad-mem", "bad-array", "script-not-found"]
    )


def test_an_unknown_site_does_not_hide_what_does_not_depend_on_it(tmp_path):
    found = mistakes(tmp_path, "trian.py", site="cyclon", time="90", secrets=("TOKEN",))
    assert sorted(found) == ["bad-time", "script-not-found", "unknown-site", "unset-secret"]


@pytest.mark.parametrize(
    ("asked", "only"),
    [
        ({"time": "90"}, ["bad-time"]),  # and not: there is no time
        ({"site": "cyclone", "gpus_per_node": -1, "launcher": "srun"}, ["bad-gpus-per-node"]),
        ({"site": "cyclone", "nodes": 0, "cpus_per_task": 1000}, ["bad-nodes"]),
        ({"site": "cyclon", "max_restarts": 1}, ["unknown-site"]),  # its launcher is not known
        ({"site": "olivia", "account": "two words"}, ["bad-account"]),  # and not: no account
    ],
)
def test_what_follows_from_a_wrong_value_is_not_said(tmp_path, asked, only):
    with pytest.raises(FindingsError) as caught:
        ask(tmp_path, **asked)
    codes = [f.code for f in caught.value.findings]
    assert [code for code in codes if code not in _ADVICE] == only
    assert "no-time" not in codes or "time" not in asked


def test_values_that_contradict_each_other_are_all_found(tmp_path):
    found = mistakes(
        tmp_path, time="1h", stop_before="2h", nproc_per_node=2, gpus_per_node=1, launcher="single"
    )
    assert found == ["impossible-job"] * 3


def test_advice_about_a_refused_job_stands_after_its_mistakes(tmp_path):
    with pytest.raises(FindingsError) as caught:
        ask(tmp_path, "trian.py", site="della", nodes=2, gpus_per_node=1)
    codes = [f.code for f in caught.value.findings]
    assert codes[0] == "script-not-found"
    assert codes.index("half-filled-nodes") < codes.index("no-time")


def test_nothing_to_run_does_not_hide_the_rest(tmp_path):
    (tmp_path / "job.toml").write_text('[job]\ntime = "90"\n')
    assert mistakes(tmp_path, file=tmp_path / "job.toml") == ["no-script", "bad-time"]
