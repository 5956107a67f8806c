"""Any file is read as lines, in bounded memory, and mutilated logs never crash."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankup.errors import RankupError
from rankup.explain import reading
from rankup.explain.explain_logs import explain_logs
from rankup.explain.explanation import explanation_lines
from rankup.explain.reading import LogFile

LOGS = Path(__file__).parent / "logs"
REAL = [path.read_bytes() for path in sorted(LOGS.glob("*/job.log"))]
TRACEBACK = (
    b'Traceback (most recent call last):\n  File "/home/user/train.py", line 3, in <module>\n    1 / 0\n'
    b"ZeroDivisionError: division by zero\n"
)


def lines_of(path: Path) -> list[tuple[int, str]]:
    return list(LogFile(path, path.name).lines())


def explained(path: Path, data: bytes):
    path.write_bytes(data)
    return explain_logs([path])[0]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: data.replace(b"\n", b"\r\n"), id="Windows line ends"),
        pytest.param(lambda data: data.decode().encode("utf-16"), id="UTF-16"),
        pytest.param(gzip.compress, id="gzip"),
        pytest.param(lambda data: b"\x00\xff\xfe" * 1000 + b"\n" + data, id="binary before"),
        pytest.param(lambda data: data + b"\x80" * 5000, id="binary after"),
        pytest.param(lambda data: b"x" * (1 << 20) + b"\n" + data, id="a line of a megabyte"),
        pytest.param(
            lambda data: b"Epoch 0:  3%|#   | 1/30\rEpoch 0:  6%|##  | 2/30" + data, id="progress bar"
        ),
        pytest.param(lambda data: data.replace(b"Zero", b"\x1b[31mZero\x1b[0m"), id="colours"),
        pytest.param(
            lambda data: b"".join(b"[rank3]: " + line for line in data.splitlines(True)), id="torch's label"
        ),
        pytest.param(
            lambda data: b"".join(b"3: " + line for line in data.splitlines(True)), id="srun's label"
        ),
        pytest.param(
            lambda data: b"".join(b"[default3]:" + line for line in data.splitlines(True)), id="--tee"
        ),
        pytest.param(
            lambda data: b"".join(b"[1,3]<stderr>: " + line for line in data.splitlines(True)), id="mpirun"
        ),
        pytest.param(lambda data: data.rstrip(b"\n"), id="no last line end"),
    ],
)
def test_the_traceback_is_found_whatever_is_around_it(tmp_path, change):
    found = explained(tmp_path / "job.log", change(TRACEBACK))
    assert found is not None
    assert found.code == "python-exception"
    assert "ZeroDivisionError: division by zero" in found.message
    assert "train.py" in found.quotes[0].text


@pytest.mark.parametrize(
    "label", ["[rank3]: ", "3: ", "3: [rank3]: ", "[1,3]<stderr>: ", "[rank 3] ", "\x1b[1m[rank3]\x1b[0m: "]
)
def test_the_label_gives_the_rank(tmp_path, label):
    text = TRACEBACK.decode().splitlines(keepends=True)
    found = explained(tmp_path / "job.log", "".join(label + line for line in text).encode())
    assert found.rank == 3


def test_numbers_in_front_of_a_few_lines_are_no_label(tmp_path):
    found = explained(tmp_path / "job.log", b"1: reading\n2: training\nepoch 1\nepoch 2\n" + TRACEBACK)
    assert found.rank is None


@pytest.mark.parametrize("data", [b"", b"\n" * 1000, b"\0" * 100_000, b"\r\r\r", b"\x1f\x8b", b"\xff\xfe"])
def test_a_log_without_anything_shows_no_failure(tmp_path, data):
    (tmp_path / "ok.log").write_bytes(b"done\n")
    (tmp_path / "job.log").write_bytes(data)
    assert explain_logs([tmp_path / "job.log", tmp_path / "ok.log"])[0] is None


def test_a_label_that_comes_late_is_noticed(tmp_path):
    text = "preparing\n" * 3000 + "".join(
        f"3: {line}" for line in TRACEBACK.decode().splitlines(keepends=True)
    )
    assert explained(tmp_path / "job.log", text.encode()).rank == 3


def test_a_missing_log_is_one_clear_error(tmp_path):
    with pytest.raises(RankupError) as error:
        explain_logs([tmp_path / "none.log"])
    assert error.value.code == "no-log"
    with pytest.raises(RankupError):
        explain_logs([tmp_path])  # an empty folder


def test_one_missing_log_among_others_is_a_note(tmp_path):
    (tmp_path / "a.log").write_bytes(TRACEBACK)
    found, notes = explain_logs([tmp_path / "a.log", tmp_path / "none.log"])
    assert found is not None
    assert notes == ["none.log: No such file or directory"]


def test_a_gzip_file_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path):
    data = gzip.compress(TRACEBACK + random.Random(0).randbytes(100_000).hex().encode())
    found = explained(tmp_path / "job.log.gz", data[: len(data) // 2])
    assert found is not None
    assert any("job.log.gz: " in line for line in found.cascade)


def test_of_a_large_file_head_tail_and_the_first_traceback_are_read(tmp_path, monkeypatch):
    for name, size in {"HEAD": 1000, "TAIL": 1000, "_CHUNK": 256, "_WINDOW": 2000}.items():
        monkeypatch.setattr(reading, name, size)
    before, after = b"step\n" * 5000, b"other\n" * 5000
    path = tmp_path / "job.log"
    path.write_bytes(before + TRACEBACK + after)
    file = LogFile(path, "job.log")
    read = list(file.lines())
    assert read[0] == (1, "step")
    assert read[-1] == (10_004, "other")
    assert (5004, "ZeroDivisionError: division by zero") in read
    assert 0 < file.skipped < len(before + after)
    assert sum(len(text) + 1 for _, text in read) < 6000


def test_numbers_of_lines_count_those_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "HEAD", 100)
    monkeypatch.setattr(reading, "TAIL", 100)
    monkeypatch.setattr(reading, "_CHUNK", 64)
    path = tmp_path / "job.log"
    path.write_text("".join(f"line {i}\n" for i in range(1, 2001)))
    whole = [(number, text) for number, text in lines_of(path) if text.startswith("line ") and number > 1950]
    assert whole[-1] == (2000, "line 2000")
    assert all(text == f"line {number}" for number, text in whole[1:])


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutilated_logs_never_crash(tmp_path, data):
    text = data.draw(st.sampled_from(REAL))
    for _ in range(data.draw(st.integers(1, 4))):
        i, j = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        kind = data.draw(st.sampled_from(["cut", "drop", "binary", "double", "shuffle", "endless", "case"]))
        if kind == "cut":
            text = text[i:j]
        elif kind == "drop":
            text = text[:i] + text[j:]
        elif kind == "binary":
            text = text[:i] + data.draw(st.binary(max_size=200)) + text[i:]
        elif kind == "double":
            text = text[:j] + text[i:]
        elif kind == "shuffle":
            lines = text.split(b"\n")
            data.draw(st.randoms(use_true_random=False)).shuffle(lines)
            text = b"\n".join(lines)
        elif kind == "endless":
            text = text[:i] + text[i:j].replace(b"\n", b" ") * 3 + text[j:]
        else:
            text = text[:i] + text[i:j].upper() + text[j:]
    path = tmp_path / "job.log"
    path.write_bytes(text)
    found, _ = explain_logs([path])
    if found is not None:
        assert explanation_lines(found)
        assert found.as_dict()["code"]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=4000))
def test_rubbish_never_crashes(tmp_path, data):
    path = tmp_path / "job.log"
    path.write_bytes(data)
    (tmp_path / "ok.log").write_bytes(b"done\n")
    explain_logs([path, tmp_path / "ok.log"])
