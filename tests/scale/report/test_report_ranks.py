"""Ranks in a report: what each needs for a step, whatever its file looks like; and pictures that stay readable."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankup.scale.report import rank_records
from rankup.scale.report.content import of_runs
from rankup.scale.report.figures.all_pictures import all_pictures
from rankup.scale.report.figures.draw import draw_all
from rankup.scale.report.figures.lines import named
from rankup.scale.report.rank_records import read_ranks
from report_inputs import write_ranks, write_run


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "runs" / "a")


def file_of(folder, rank=0):
    return folder / "records" / f"rank-{rank}.jsonl"


def pictures(*paths):
    return {picture.name: picture for picture in all_pictures(of_runs(paths))}


def test_the_values_are_those_of_the_records(folder):
    write_ranks(folder, 3, slow=[2], late_data=[1])
    found = read_ranks(folder)
    assert list(found.labels) == ["rank 0", "rank 1", "rank 2"]  # one node: its name says nothing
    assert np.allclose(found.step_s, 0.25)
    assert np.allclose(found.data_s, [[0.005], [0.05], [0.005]])
    assert np.allclose(found.own_s, [[0.1], [0.1], [0.2]])
    assert found.seconds[0] > 0 and found.seconds[-1] < 59


def test_of_a_long_file_some_hundred_records_are_enough(folder):
    write_ranks(folder, 1, seconds=3000)
    read = rank_records._some(file_of(folder), 100)
    assert 90 <= len(read) <= 110
    assert (read[0]["time"], read[-1]["time"]) == (1001.0, 4000.0)
    assert np.allclose(read_ranks(folder).own_s, 0.1)


def test_an_attempt_that_begins_at_0_again_takes_nothing_away(folder):
    write_ranks(folder, 1, seconds=30)
    text = file_of(folder).read_text()
    again = [json.loads(line) for line in text.splitlines()]
    for record in again:
        record["time"] += 100
        record["pid"] = 7
    file_of(folder).write_text(text + "".join(json.dumps(one) + "\n" for one in again))
    found = read_ranks(folder)
    known = np.isfinite(found.own_s)
    assert np.allclose(found.own_s[known], 0.1) and np.allclose(found.step_s[known], 0.25)
    assert not known.all(), "nothing is drawn where nothing was trained"


def test_a_rank_that_tells_no_computation_has_none_and_is_no_error(folder):
    write_ranks(folder, 2)
    text = file_of(folder, 1).read_text()
    file_of(folder, 1).write_text(text.replace('"before_steps": ', '"before_steps": 0, "was": '))
    found = read_ranks(folder)
    assert np.isfinite(found.own_s[0]).all() and not np.isfinite(found.own_s[1]).any()
    assert "100 ms on rank 0." in pictures(folder)["rank-computation"].alt


@pytest.mark.parametrize(
    "text", ["", "\n", '{"kind": "rank"', "\x00\xff", '{"kind": "rank", "time": 1}\n' * 3, "[]\n"]
)
def test_a_file_that_says_nothing_is_left_out(folder, text):
    write_ranks(folder, 2)
    file_of(folder, 1).write_bytes(text.encode("latin-1"))
    assert list(read_ranks(folder).labels) == ["rank 0"]
    file_of(folder, 0).unlink()
    assert read_ranks(folder) is None
    assert "rank-step" not in pictures(folder)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 60), st.text(alphabet='0129.-e,:{}"\n ', max_size=12))
    )
)
def test_a_mutilated_file_gives_numbers_or_nothing(folder, edits):
    write_ranks(folder, 2, seconds=12)
    text = file_of(folder, 1).read_text()
    for where, length, inserted in edits:
        at = int(where * len(text))
        text = text[:at] + inserted + text[at + length :]
    file_of(folder, 1).write_text(text)
    found = read_ranks(folder)
    assert found is None or found.step_s.shape == (len(found.labels), len(found.seconds))


@pytest.mark.slow
def test_few_ranks_have_a_line_each_and_the_slow_one_is_told(folder):
    write_ranks(folder, 4, slow=[2])
    found = pictures(folder)
    assert [name for name in found if "rank" in name] == ["rank-computation", "rank-step", "rank-data"]
    assert found["rank-computation"].alt.startswith("Computation of a step by rank over time: ") and (
        "200 ms on rank 2" in found["rank-computation"].alt
    )
    [drawn] = draw_all([found["rank-computation"]])
    assert all(f"rank {rank}" in drawn.inline for rank in range(4))


@pytest.mark.slow
def test_of_many_ranks_the_ones_that_stand_out_are_named(folder):
    write_ranks(folder, 64, slow=[17], late_data=[40])
    found = pictures(folder)
    assert (
        "the median over 64 ranks is 100 ms, the longest 200 ms on rank 17 on node3"
        in found["rank-computation"].alt
    )
    computation, data, step = draw_all([found[f"rank-{name}"] for name in ("computation", "data", "step")])
    assert "median" in computation.inline and "rank 17 on node3" in computation.inline
    assert "rank 40 on node6" in data.inline
    assert [one.inline.count("rank ") - one.picture.alt.count("rank ") for one in (computation, data)] == [
        1,
        1,
    ]
    assert "rank 0" not in step.inline.replace(step.picture.alt, "")  # all alike: nobody is named


def test_who_stands_out():
    assert named(np.array([1.0, 1.0, 1.05, 3.0, 0.2, 1.5, 2.0])) == [3, 6, 4]
    assert named(np.array([1.0, 1.05, 0.95])) == [] and named(np.zeros(5)) == []


def test_several_runs_have_no_figures_of_ranks(folder, tmp_path):
    write_ranks(folder, 2)
    other = write_run(tmp_path / "runs" / "b", seed=1)
    assert not [name for name in pictures(folder, other) if name.startswith("rank-")]


@pytest.mark.slow
def test_many_nodes_are_a_median_and_a_band(tmp_path):
    path = write_run(tmp_path / "runs" / "wide", hosts=20, gpus=2)
    file = path / "records" / "utilization-node7.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        for gpu in line["gpus"]:
            gpu["utilization"] = 3
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    [drawn] = draw_all([pictures(path)["gpu-utilization"]])
    assert "median" in drawn.inline and "node7" in drawn.inline and "node8" not in drawn.inline


def test_a_run_with_a_log_of_nvidia_smi_has_curves_of_its_gpus(tmp_path):
    path = write_run(tmp_path / "runs" / "smi", hosts=0)
    rows = [
        f"2026/03/01 10:{at // 6:02d}:{at % 6}0.000, {gpu}, GPU-{gpu}, {50 + 20 * gpu}, 2048, 4096, 100.0, 6{gpu}\n"
        for at in range(20)
        for gpu in range(2)
    ]
    header = (
        "timestamp, index, uuid, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], "
    )
    text = header + "temperature.gpu\n" + "".join(rows) + "2026/03/01 10:15:00.000, 0, GPU-0, 9"
    (path / "records" / "nvidia-smi-n1.csv").write_text(text)
    [host] = of_runs([path]).runs[0].hosts
    assert (host.host, len(host.seconds), host.seconds[-1]) == ("n1", 20, 190.0)
    assert (host.gpu[0], host.gpu_memory[0], host.power[0], host.temperature[0]) == (60.0, 2**31, 200.0, 61.0)
    found = pictures(path)
    assert {"gpu-utilization", "gpu-memory", "gpu-power", "gpu-temperature"} <= found.keys()
    assert "cpu-utilization" not in found
    assert found["gpu-power"].alt == "GPU power over time, on average 200 W in n1."
