"""The log of nvidia-smi: rounds of rows, cut and mutilated; nothing else than whole rows is believed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from importlib.resources import files

from hypothesis import given
from hypothesis import strategies as st

from rankup.core.rundir import RunDir
from rankup.monitor.nvidia_smi import COLUMNS, SmiLog, host_of, is_log
from rankup.monitor.reader import RunReader
from rankup.monitor.rows import node_rows, rank_rows

HEADER = (
    "timestamp, index, uuid, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], "
    "temperature.gpu\n"
)
BEGAN = datetime(2026, 3, 1, 10, 15, tzinfo=timezone.utc)


def row(at=0.0, index=0, use="80", used="1024", power="300.50", temperature="61"):
    time = (BEGAN + timedelta(seconds=at)).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
    return f"{time}, {index}, GPU-{index}, {use}, {used}, 81920, {power}, {temperature}\n"


def log(rounds, gpus=2, header=HEADER):
    return header + "".join(
        row(10 * number + index / 1000, index) for number in range(rounds) for index in range(gpus)
    )


def read(text, host="n1"):
    *lines, _ = text.encode().split(b"\n")  # what follows the last newline is not a whole line
    return list(SmiLog(host).add(lines))


def test_a_round_is_a_sample_with_a_gpu_for_each_row():
    first, second = read(log(2))
    assert (first["kind"], first["host"], first["time"]) == ("sample", "n1", BEGAN.timestamp())
    assert second["time"] - first["time"] == 10
    assert first["gpus"][1] == {
        **{"index": 1, "uuid": "GPU-1", "utilization": 80.0, "memory_bytes": 1024 << 20},
        **{"memory_total": 81920 << 20, "power_w": 300.5, "temperature_c": 61.0},
    }


def test_what_a_driver_does_not_tell_is_none_and_units_are_no_harm():
    text = HEADER + row(use="[N/A]", used="[Not Supported]", power="[Unknown Error]", temperature="N/A")
    text += row(10, use="7 %", used="512 MiB", power="99.9 W")
    first, second = read(text)
    names = ("utilization", "memory_bytes", "power_w", "temperature_c")
    assert [first["gpus"][0][name] for name in names] == [None] * 4
    assert [second["gpus"][0][name] for name in names] == [7.0, 512 << 20, 99.9, 61.0]


def test_a_line_that_a_kill_has_cut_is_passed_over_also_with_the_next_attempts_header_behind_it():
    cut = log(1) + row(10)[:-5]  # "…, 300.5": a whole number, and a wrong one
    found = read(cut + HEADER.removesuffix("\n") + "\n" + row(60) + row(60.001, 1) + row(70) + row(70.001, 1))
    assert [one["time"] - BEGAN.timestamp() for one in found] == [0, 60, 70]


def test_the_columns_are_those_of_the_header():
    header = "timestamp, index, power.draw [W], utilization.gpu [%]\n"
    [sample] = read(header + "2026/03/01 10:15:00.000, 3, 71.5, 12\n2026/03/01 10:15:10.000, 3, 71.5, 12\n")[
        :1
    ]
    gpu = sample["gpus"][0]
    assert (gpu["index"], gpu["utilization"], gpu["power_w"], gpu["memory_bytes"]) == (3, 12.0, 71.5, None)


def test_a_log_of_which_the_end_alone_is_read_has_the_columns_of_the_script():
    text = log(4, gpus=8)
    found = read(text[len(text) // 2 + 3 :])
    assert [len(one["gpus"]) for one in found[1:]] == [8] * len(found[1:]) and len(found) >= 2


def test_a_gpu_that_is_lost_is_missing_and_the_others_are_not():
    lost = "2026/03/01 10:15:20.001, 1, [GPU is lost], [GPU is lost]\n"
    found = read(log(2) + row(20) + lost + row(30) + row(40))
    assert [len(one["gpus"]) for one in found] == [2, 2, 1, 1]


def test_the_script_asks_for_these_columns():
    part = files("rankup.script").joinpath("parts", "sampler.sh").read_text()
    assert f"query={','.join(COLUMNS)}\n" in part
    assert "TZ=UTC0 nvidia-smi" in part  # the times name no zone


def test_file_names():
    assert is_log("nvidia-smi-n1.cluster.csv") and host_of("nvidia-smi-n1.cluster.csv") == "n1.cluster"
    assert not is_log("utilization-n1.jsonl") and not is_log("gpus-n1.csv")


TEXT = st.text(alphabet="0123456789,./:[]NA timesp-\n%GPU\x00é", max_size=60)


@given(
    rounds=st.integers(1, 5),
    gpus=st.integers(1, 4),
    edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30), TEXT), max_size=4),
)
def test_a_mutilated_log_gives_samples_of_rows_that_are_in_it(rounds, gpus, edits):
    text = log(rounds, gpus)
    for where, length, inserted in edits:
        at = int(where * len(text))
        text = text[:at] + inserted + text[at + length :]
    for one in read(text):
        assert one["gpus"]
        indices = [gpu["index"] for gpu in one["gpus"]]
        assert indices == sorted(set(indices))
        for gpu in one["gpus"]:
            numbers = [value for name, value in gpu.items() if name != "uuid" and value is not None]
            assert all(value >= 0 and value < float("inf") for value in numbers)


@given(rounds=st.integers(1, 5), gpus=st.integers(1, 4), cut=st.floats(0, 1))
def test_what_is_cut_at_the_end_costs_at_most_the_last_round(rounds, gpus, cut):
    text = log(rounds, gpus)
    kept = text[: int(cut * len(text))]
    whole = (kept.count("\n") - 1) // gpus
    found = read(kept)
    assert max(0, whole - 1) <= len(found) <= rounds
    assert all(one in read(log(rounds + 1, gpus)) for one in found)


@given(text=st.binary(max_size=300), pieces=st.integers(1, 7))
def test_it_makes_no_difference_in_which_pieces_lines_come(text, pieces):
    lines = (HEADER + log(2)).encode().split(b"\n") + text.split(b"\n")
    parser = SmiLog("n1")
    found = [one for at in range(0, len(lines), pieces) for one in parser.add(lines[at : at + pieces])]
    assert found == list(SmiLog("n1").add(lines))


def test_top_shows_the_gpus_of_several_nodes_from_it(tmp_path):
    (tmp_path / "records").mkdir()
    for host in ("n1", "n2"):
        (tmp_path / "records" / f"nvidia-smi-{host}.csv").write_text(log(3))
    reader = RunReader(RunDir(tmp_path))
    reader.update()
    now = BEGAN.timestamp() + 21
    rows = rank_rows(reader.run, now)
    assert [(one.host, one.gpu, one.utilization, one.power, one.temperature) for one in rows] == [
        (host, gpu, 80.0, 300.5, 61.0) for host in ("n1", "n2") for gpu in (0, 1)
    ]
    assert rows[0].memory == 1024 << 20 and rows[0].memory_total == 81920 << 20
    with (tmp_path / "records" / "nvidia-smi-n1.csv").open("a") as file:
        file.write(row(30, use="5") + row(30.001, 1, use="6"))  # at once: no further row has to come
    reader.update()
    assert [one.utilization for one in rank_rows(reader.run, now + 10)][:2] == [5.0, 6.0]
    assert [one.gpus for one in node_rows(reader.run, now + 10)] == [2, 2]
