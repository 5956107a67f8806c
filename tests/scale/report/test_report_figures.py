"""Figures: which there are, what their texts say, and that the same numbers give the same bytes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from rankup.scale.report.content import of_runs, of_study
from rankup.scale.report.figures.all_pictures import all_pictures
from rankup.scale.report.figures.cost import frontier
from rankup.scale.report.figures.draw import draw_all
from rankup.scale.report.figures.picture import DARK, ON_COLOUR, SERIES
from rankup.scale.report.sentences import summary
from rankup.scale.report.tables import all_tables
from rankup.scale.results import Configuration
from report_inputs import NASTY, compared, measured, study, write_run


def pictures(content):
    return {picture.name: picture for picture in all_pictures(content)}


def contrast(a, b):
    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(a), light(b)))
    return (high + 0.05) / (low + 0.05)


def test_a_study_has_all_figures_that_it_has_numbers_for(tmp_path):
    results = study()
    assert list(pictures(of_study(results, tmp_path, rows=compared(results)))) == [
        "throughput", "time", "speed-up", "efficiency", "breakdown", "cost",
        "loss-epochs", "loss-time", "accuracy-epochs", "accuracy-time",
    ]  # fmt: skip
    assert "efficiency" not in pictures(of_study(results, tmp_path))


def test_the_texts_of_figures_tell_the_numbers(tmp_path):
    results = study((1, 2))
    found = pictures(of_study(results, tmp_path, rows=compared(results)))
    assert found["throughput"].alt == (
        "Throughput against CPU cores: 1,471 samples/s with 1 process and 2,651 samples/s with 2 processes."
    )
    assert "communication 16 %" in found["breakdown"].alt
    assert "90 % with 2 processes" in found["efficiency"].alt.replace("90.1 %", "90 %")


def drawn(picture):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure()
    FigureCanvasAgg(figure)
    picture.draw(figure)
    return figure.axes[0]


def test_the_speed_up_is_drawn_with_its_ideal_on_axes_of_powers_of_two(tmp_path):
    results = study((1, 2, 4))
    picture = pictures(of_study(results, tmp_path, rows=compared(results)))["speed-up"]
    axes = drawn(picture)
    for axis in (axes.xaxis, axes.yaxis):
        assert axis.get_scale() == "log" and axis.get_transform().base == 2
    ideal = axes.lines[0]
    assert all(x == pytest.approx(y) for x, y in zip(*ideal.get_data(), strict=True))
    assert picture.alt.startswith("Speed-up against CPU cores: 1 with 1 process")


def test_error_bars_of_series_at_the_same_devices_stand_side_by_side(tmp_path):
    results = study((1, 2))
    rows = compared(results)
    rows += [replace(row, series="other") for row in rows]
    for name in ("throughput", "speed-up", "efficiency"):
        axes = drawn(pictures(of_study(results, tmp_path, rows=rows))[name])
        places = [x for bars in axes.containers for x in bars.lines[0].get_xdata()]
        assert len(places) == len(set(places)) == 4


def test_an_unfair_ratio_is_an_open_point_and_marked_in_words(tmp_path):
    results = study((1, 2))
    first, second = compared(results)
    content = of_study(results, tmp_path, rows=[first, replace(second, unfair=True)])
    for name in ("speed-up", "efficiency"):
        picture = pictures(content)[name]
        assert "(unfair) with 2 processes" in picture.alt and "Open points are unfair" in picture.caption
        assert any(line.get_color() == ON_COLOUR for line in drawn(picture).lines)
    (table, *_) = all_tables(content)
    assert "(unfair)" in table.markdown() and "(unfair)" in table.latex() and ",unfair," in table.csv()
    assert not any("times as fast" in sentence for sentence in summary(content))


def test_a_study_of_one_configuration_has_no_figure_against_devices(tmp_path):
    content = of_study(study((2,)), tmp_path)
    assert list(pictures(content)) == [
        "breakdown",
        "loss-epochs",
        "loss-time",
        "accuracy-epochs",
        "accuracy-time",
    ]
    assert "A comparison requires a second one" in summary(content)[0]


def test_runs_with_samples_have_figures_of_utilisation(tmp_path):
    found = pictures(of_runs([write_run(tmp_path / "a", gpus=2, hosts=2, steps=5)]))
    assert "in node1 and " in found["gpu-utilization"].alt
    assert list(found)[-7:] == [
        "gpu-utilization", "cpu-utilization", "gpu-memory", "gpu-power", "gpu-temperature", "node-memory", "network",
    ]  # fmt: skip


def test_of_many_runs_the_best_and_the_worst_are_named_and_points_left_out_are_told(tmp_path):
    runs = [write_run(tmp_path / str(i), seed=i, steps=300, epochs=2, samples=0) for i in range(8)]
    caption = pictures(of_runs(runs))["loss-epochs"].caption
    assert "8 lines in grey" in caption
    long = of_runs([write_run(tmp_path / "long", steps=2_000, epochs=2)])
    assert (
        "of up to 4,000 records: the least and the greatest of each stretch"
        in pictures(long)["loss-time"].caption
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["throughput", "breakdown", "accuracy-time"])
def test_the_same_numbers_give_the_same_files(tmp_path, name):
    picture = pictures(of_study(study((1, 2)), tmp_path))[name]
    first, second = draw_all([picture, picture])
    assert first == second
    assert first.files["pdf"].startswith(b"%PDF") and first.files["png"].startswith(b"\x89PNG")
    assert b"Date" not in first.files["svg"] and b"CreationDate" not in first.files["pdf"]


@pytest.mark.slow
def test_the_svg_of_the_page_is_xml_with_ids_of_its_own_and_colours_by_name(tmp_path):
    results = study((1, 2), facts={"precision": NASTY})
    results = replace(
        results,
        configurations=[*results.configurations, Configuration({}, [measured(4, 9.0, strategy=NASTY)])],
    )
    for picture in all_pictures(of_study(results, tmp_path)):
        drawn = draw_all([picture])[0].inline
        ET.fromstring(drawn.replace("xlink:href", "href"))
        assert (
            "<script" not in drawn
            and "<style" not in drawn
            and "http" not in drawn.replace("http://www.w3.org", "")
        )
        assert not [colour for colour in DARK if colour in drawn]
        ids = [part.split('"')[0] for part in drawn.split(' id="')[1:]]
        assert len(set(ids)) == len(ids) and all(one.startswith(picture.name) for one in ids)


def test_colours_have_contrast_in_the_light_and_in_the_dark():
    for colour in SERIES:
        assert contrast(colour, "#ffffff") >= 4.5  # also text beside lines
        assert contrast(DARK[colour], "#13181d") >= 4.5


def test_the_frontier_leaves_out_what_is_slower_and_dearer(tmp_path):
    rows = of_study(study((1, 2, 4)), tmp_path).rows
    worse = replace(rows[1], name="worse", devices=64)
    assert [row.name for row in frontier([*rows, worse])] == ["4 processes", "2 processes", "1 process"]


def test_the_summary_says_how_much_faster_and_what_the_network_takes(tmp_path):
    results = study((1, 2))
    said = summary(of_study(results, tmp_path, rows=compared(results)))
    assert said[0] == "2 processes train 1.8 times as fast as 1 process (min–max 1.77–1.84)."
    assert said[1] == (
        "The largest loss of ddp, 2 processes: communication between the processes takes 16 % of a step on 1 node."
    )


def test_the_summary_of_uncompared_runs_has_no_ratio(tmp_path):
    assert "times as fast" not in " ".join(summary(of_study(study((1, 2)), tmp_path)))
