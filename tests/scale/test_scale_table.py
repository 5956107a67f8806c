"""The table as it is printed, to the letter where that is what matters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from studies import repeats, run

from rankup.scale.rows import compare
from rankup.scale.table import heading, ratio_table, run_table


def test_a_study_of_three_repeats():
    rows = compare([*repeats(1, 12.4, 12.1, 12.9, threads=2), *repeats(2, 8.1, 8.0, 8.42, threads=1)])
    assert (
        ratio_table(rows)
        == """\
version  processes  threads each  runtime      min–max  speed-up      range  efficiency  test accuracy
plain            1             2  12.40 s  12.10–12.90      1.00          –        100%         95.00%
ddp              2             1   8.10 s    8.00–8.42      1.53  1.44–1.61        153%         95.00%

  runtime: training alone, without start-up and evaluation; median of the repeats
  speed-up: runtime of 1 process / runtime of the row
  efficiency: speed-up / how many times the cores (processes × threads), which are as many in all rows
  3 repeats each: versions of equal speed show separate ranges in 10% of such studies"""
    )


def test_single_runs_have_no_spread_and_the_table_says_so():
    text = ratio_table(compare([run(1, 10), run(2, 5)]))
    cells = text.splitlines()[2].split()
    assert cells == ["ddp", "2", "1", "5.00", "s", "–", "2.00", "–", "100%", "95.00%"]
    assert "one run tells no spread" in text
    assert "median" not in text


def test_a_speed_up_within_the_noise_is_called_that():
    text = ratio_table(compare([*repeats(1, 10, 11), *repeats(2, 10.5, 9), *repeats(4, 4, 4.1)]))
    assert "2 processes: within the noise, the runtimes overlap those of 1 process" in text
    assert "4 processes: within" not in text


def test_efficiency_says_of_what():
    gpu = {"device_type": "cuda", "device": "H200"}
    equal = compare([run(1), run(2)])
    unequal = compare([run(1, threads=2), run(4, threads=1)])
    gpus = compare([run(1, **gpu), run(2, **gpu)])
    assert "how many times the processes; each has as many threads" in ratio_table(equal)
    assert "how many times the cores (processes × threads)\n" in ratio_table(unequal)
    assert "how many times the GPUs" in ratio_table(gpus)


@given(st.lists(st.floats(0.01, 1e5), min_size=1, max_size=4), st.floats(0, 1))
def test_columns_are_aligned_and_fit_a_screen(seconds, accuracy):
    runs = [r for n in (1, 2, 128) for r in repeats(n, *seconds, test_accuracy=accuracy)]
    lines = ratio_table(compare(runs)).split("\n\n")[0].splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 120


def test_runs_that_may_not_be_compared_are_listed_without_a_ratio():
    lines = run_table([run(2, 5.5, samples=1408), run(1, 10)]).splitlines()
    assert lines[0].split() == [
        "version",
        "processes",
        "threads",
        "each",
        "repeat",
        "runtime",
        "samples",
        "test",
        "accuracy",
    ]
    assert [line.split()[:2] for line in lines[1:]] == [["plain", "1"], ["ddp", "2"]]
    assert "1,408" in lines[2]
    assert "5.50 s" in lines[2]


def test_the_heading_tells_the_work():
    text = heading(run(1, settings={"dropout": "off"}))
    assert "1,437 samples in 23 steps of a global batch of 64" in text
    assert "fp32 on CPU" in text
    assert "dropout=off" in text
