"""The tables as they are printed, to the letter where that is what matters."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from studies import configuration, study

from rankup.scale.rows import rows
from rankup.scale.summary import report
from rankup.scale.table import heading, notes, time_table


def test_a_study_of_three_repeats():
    made = report(study(configuration(1, 12.4, 12.1, 12.9), configuration(2, 8.1, 8.0, 8.42)))
    assert (
        made.text
        == """\
strong scaling: mnist-cnn on digits, 1,437 samples in 23 steps, global batch 64, epochs 1
adam, fp32, lr 0.001, seed 0, torch 2.13.0

configuration     cores  threads each  runs  runtime      min–max  samples/s  test accuracy
none, 1 process       1             1     3  12.40 s  12.10–12.90        116         95.00%
ddp, 2 processes      2             1     3   8.10 s    8.00–8.42        177         95.00%

against none, 1 process (one device without DDP)
  configuration     speed-up      range  efficiency
  ddp, 2 processes      1.53  1.44–1.61         77%

  runtime: training alone, without start-up and evaluation; median of the runs
  speed-up: runtime of the baseline / runtime of the row
  efficiency: speed-up / how many times the cores (processes × threads)
  3 runs each give no interval (5 do): configurations of equal speed show separate ranges in 10% of such studies
"""
    )


def test_six_repeats_have_intervals():
    text = report(study(configuration(1, *range(10, 16)), configuration(2, *range(6, 12)))).text
    assert "95 % interval" in text
    assert "10.00–15.00" in text
    assert "its interval" in text
    assert "by bootstrap" in text


def test_single_runs_have_no_spread():
    text = report(study(configuration(1, 10), configuration(2, 5))).text
    assert "one run each" in text
    assert "min–max" not in text
    assert "median" not in text


def test_a_speed_up_within_the_noise_is_called_that():
    noisy = configuration(2, 10.5, 9, 10)
    text = report(study(configuration(1, 10, 11, 10.2), noisy, configuration(4, 4, 4.1, 4))).text
    assert "ddp, 2 processes: within the noise, the runtimes overlap those of none, 1 process" in text
    assert "4 processes: within" not in text


def test_efficiency_says_of_what():
    gpu = {"device_type": "cuda", "device": "H200"}
    assert "how many times the GPUs" in report(study(configuration(1, **gpu), configuration(2, **gpu))).text
    assert (
        "how many times the cores (processes × threads)"
        in report(study(configuration(1), configuration(2))).text
    )


def test_weak_scaling_says_that_it_compares_rates():
    grown = configuration(2, 11, 11, 11, samples=2874, global_batch=128)
    text = report(study(configuration(1), grown, scaling="weak")).text
    assert text.startswith("weak scaling: ")
    assert "speed-up: samples/s of the row / samples/s of the baseline" in text


@settings(max_examples=25)
@given(st.lists(st.floats(0.01, 1e5), min_size=1, max_size=4), st.floats(0, 1))
def test_columns_are_aligned_and_fit_a_screen(seconds, accuracy):
    cells = [configuration(n, *seconds, accuracy=accuracy) for n in (1, 2, 128)]
    lines = time_table(rows(study(*cells))).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 120


def test_the_heading_tells_what_all_runs_have_in_common():
    text = heading(study(configuration(1, settings={"dropout": "off"}), configuration(2, precision="bf16")))
    assert "1,437 samples in 23 steps, global batch 64" in text
    assert "fp32" not in text


def test_samples_of_the_first_steps_are_in_the_heading_and_not_in_the_rate():
    made = study(configuration(1, samples=1400, all_samples=1437))
    assert "1,437 samples in 23 steps" in heading(made)
    assert notes(made, rows(made), [])[0].startswith(
        "runtime, samples/s: training alone, without start-up, first steps and evaluation; "
    )


def test_milliseconds_keep_three_figures():
    text = time_table(rows(study(configuration(1, 0.0015), configuration(2, 0.00144))))
    assert "0.00150 s" in text and "0.00144 s" in text
