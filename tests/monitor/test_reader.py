"""Records as they grow: only what is new is read, and what is cut, strange or gone does no harm."""

from __future__ import annotations

import json
import shutil

import pytest

from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.monitor import reader
from rankup.monitor.reader import NewRecords, RunReader
from rankup.monitor.rows import node_rows, rank_rows, rates


def rank_record(rank=0, time=100.0, steps=10, **values):
    record = {
        **{"kind": "rank", "time": time, "rank": rank, "world_size": 2, "host": "n1", "pid": 7, "gpu": None},
        **{"training": "", "phase": "step", "phase_s": 0.1, "global_step": steps, "steps": steps},
        **{"seconds": steps * 0.5, "data_s": steps * 0.1, "samples": steps * 4, "before_steps": steps},
        **{"before_s": steps * 0.3, "loss": 2.5, "cpu_s": time * 0.5, "memory_bytes": 1 << 30},
    }
    return record | values


def sample(time=100.0, **values):
    gpus = [{"index": 4, "uuid": "GPU-b", "utilization": 90, "memory_bytes": 5, "memory_total": 10}]
    gpus[0] |= {"power_w": 300.5, "temperature_c": 61}
    record = {
        **{"kind": "sample", "time": time, "host": "n1", "cpu_percent": 50.0, "memory_bytes": 3},
        **{
            "memory_total": 8,
            "job_memory": 2,
            "job_memory_limit": 4,
            "network_sent": 10,
            "network_received": 30,
        },
        **{"disk_free": 100, "disk_total": 200, "gpus": gpus},
    }
    return record | values


@pytest.fixture
def run(tmp_path):
    (tmp_path / "records").mkdir()
    return RunDir(tmp_path)


def write(run, name, *records, end="\n"):
    with (run.records / name).open("a") as file:
        file.write("\n".join(one if isinstance(one, str) else json.dumps(one) for one in records) + end)


def test_what_was_read_is_not_read_again(run):
    write(run, "a.jsonl", {"n": 1}, {"n": 2})
    new = NewRecords(str(run.records / "a.jsonl"))
    assert [one["n"] for one in new.read()] == [1, 2]
    assert list(new.read()) == []
    write(run, "a.jsonl", {"n": 3})
    assert [one["n"] for one in new.read()] == [3]


def test_of_a_long_file_only_the_end_is_read(run):
    write(run, "a.jsonl", *({"n": n} for n in range(1000)))
    assert [one["n"] for one in NewRecords(str(run.records / "a.jsonl"), first=35).read()] == [997, 998, 999]


def test_a_record_that_is_half_written_is_read_when_it_is_whole(run):
    write(run, "a.jsonl", {"n": 1}, '{"n": ', end="")
    new = NewRecords(str(run.records / "a.jsonl"))
    assert [one["n"] for one in new.read()] == [1]
    write(run, "a.jsonl", "2}")
    assert [one["n"] for one in new.read()] == [2]


def test_a_record_that_was_cut_by_a_kill_is_passed_over(run):
    write(run, "a.jsonl", {"n": 1}, '{"n": ', "[3]", "", "\xff", {"n": 4})
    assert [one["n"] for one in NewRecords(str(run.records / "a.jsonl")).read()] == [1, 4]


def test_a_file_that_was_replaced_is_read_from_its_begin(run):
    path = run.records / "a.jsonl"
    write(run, "a.jsonl", {"n": 1}, {"n": 2})
    new = NewRecords(str(path))
    list(new.read())
    path.write_text('{"n": 9}\n')
    assert [one["n"] for one in new.read()] == [9]


def test_a_begin_far_from_the_end_tells_the_facts(run, monkeypatch):
    monkeypatch.setattr(reader, "FIRST", 50)
    begin = {"kind": "begin", "time": 1.0, "facts": {"strategy": "fsdp"}}
    write(run, "steps.jsonl", begin, *({"kind": "step", "n": n} for n in range(100)))
    one = RunReader(run)
    one.update()
    assert one.run.facts == {"strategy": "fsdp"} and one.run.step["n"] == 99


def test_a_run_that_has_not_begun_has_nothing(run):
    one = RunReader(run)
    one.update()
    assert one.run.times() is None and rank_rows(one.run, 100.0) == []
    run.records.rmdir()  # not even that
    one.update()


def test_a_run_directory_that_vanishes_is_an_error(run):
    write(run, "rank-0.jsonl", rank_record())
    one = RunReader(run)
    one.update()
    shutil.rmtree(run.path)
    with pytest.raises(RankupError) as error:
        one.update()
    assert error.value.code == "run-is-gone" and error.value.exit_code == 1


@pytest.mark.parametrize(
    "strange",
    [
        {"kind": "rank"},
        {"kind": "rank", "rank": "0", "time": 1.0},
        rank_record() | {"time": None},
        rank_record() | {"time": float("nan")},
        rank_record() | {"steps": "10", "seconds": 5},
        rank_record(phase=3),
        rank_record(rank=-1),
        rank_record(samples=[]),
        {"kind": "sample", "time": 100.0},
        sample(time="now"),
        sample(host=""),
        {"kind": "step", "time": 1.0},
    ],
)
def test_strange_records_do_no_harm(run, strange):
    for name in ("rank-0.jsonl", "utilization-n1.jsonl"):
        write(run, name, strange)
    one = RunReader(run)
    one.update()
    assert rank_rows(one.run, 101.0) == [] and node_rows(one.run, 101.0) == []


@pytest.mark.parametrize("gpus", [None, {}, [1, None], [{}], [{"utilization": "much"}]])
def test_strange_gpus_are_not_told(run, gpus):
    write(run, "utilization-n1.jsonl", sample(gpus=gpus))
    one = RunReader(run)
    one.update()
    assert [row.utilization for row in rank_rows(one.run, 101.0)] in ([], [None])
    assert node_rows(one.run, 101.0)[0].cpu == 50


def test_a_row_has_the_numbers_of_the_records(run):
    write(run, "rank-1.jsonl", rank_record(1, 100.0, 10, gpu="GPU-b"), rank_record(1, 110.0, 30, gpu="GPU-b"))
    write(run, "utilization-n1.jsonl", sample(99.0), sample(109.0))
    one = RunReader(run)
    one.update()
    [row] = rank_rows(one.run, 111.0)
    assert (row.rank, row.host, row.gpu, row.global_step, row.loss) == (1, "n1", 4, 30, 2.5)
    assert (row.utilization, row.memory, row.memory_total, row.power, row.temperature) == (
        90,
        5,
        10,
        300.5,
        61,
    )
    assert (
        row.step_s == pytest.approx(0.5)
        and row.own_s == pytest.approx(0.3)
        and row.data == pytest.approx(0.2)
    )
    assert row.samples_per_s == pytest.approx(8)
    assert row.silent_s == pytest.approx(1) and row.phase_s == pytest.approx(1.1)
    [node] = node_rows(one.run, 111.0)
    assert (node.memory, node.memory_total, node.network) == (2, 4, 4.0)  # the job's limit; (10 + 30) / 10 s


def test_ranks_without_uuids_have_gpus_by_their_order(run):
    for rank in (4, 5):
        write(run, f"rank-{rank}.jsonl", rank_record(rank, gpu="GPU-?", world_size=6))
    two = [{"index": i, "uuid": None, "utilization": 10 * i} for i in (0, 1)]
    write(run, "utilization-n1.jsonl", sample(gpus=two))
    one = RunReader(run)
    one.update()
    assert [(row.rank, row.gpu, row.utilization) for row in rank_rows(one.run, 101.0)] == [
        (4, 0, 0),
        (5, 1, 10),
    ]


def test_ranks_of_an_earlier_larger_attempt_are_left_out(run):
    for rank in range(4):
        write(run, f"rank-{rank}.jsonl", rank_record(rank, 100.0, world_size=4))
    for rank in range(2):
        write(run, f"rank-{rank}.jsonl", rank_record(rank, 200.0, 1, world_size=2, pid=8))
    one = RunReader(run)
    one.update()
    assert [row.rank for row in rank_rows(one.run, 201.0)] == [0, 1]
    assert len(one.run.ranks[0].series.points) == 1  # a new process begins anew


def test_what_a_stalled_rank_did_before_is_not_told_as_now(run):
    write(run, "rank-0.jsonl", *(rank_record(0, 100.0 + t, min(10 + t, 20)) for t in range(100)))
    one = RunReader(run)
    one.update()
    [row] = rank_rows(one.run, 200.0)
    assert (row.samples_per_s, row.step_s) == (0.0, None)
    assert rates(one.run.ranks[0].series, 200.0).step_s == pytest.approx(0.5)  # for alerts


def test_without_ranks_each_gpu_has_a_row(run):
    write(run, "utilization-n1.jsonl", sample(99.0))
    one = RunReader(run)
    one.update()
    [row] = rank_rows(one.run, 100.0)
    assert (row.rank, row.host, row.gpu, row.utilization) == (None, "n1", 4, 90)
