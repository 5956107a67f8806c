"""Tables in each form: right numbers, and no name that a form misreads."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from dataclasses import replace

import pytest

from rankup.scale.parts import largest_loss
from rankup.scale.report.content import of_runs, of_study
from rankup.scale.report.judged import judged_rows
from rankup.scale.report.rows import rows_of
from rankup.scale.report.sentences import summary
from rankup.scale.report.tables import Column, Table, all_tables
from rankup.scale.report.text import clipped, listed, percent, plain, plural, short
from rankup.scale.results import Configuration, StudyResults
from rankup.scale.summary import report
from report_inputs import NASTY, compared, measured, study, write_run


def tables(content):
    return {table.name: table for table in all_tables(content)}


def one_cell(text):
    return Table("t", "T", "", [Column("Name", text=True)], [[(text, text)]])


def test_the_csv_has_the_numbers_of_the_study_at_full_precision(tmp_path):
    results = study()
    table = tables(of_study(results, tmp_path, rows=compared(results)))["comparison"]
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert [row["CPU cores"] for row in rows] == ["1", "2", "4", "8"]
    assert float(rows[0]["Training time (s)"]) == pytest.approx(40.8)
    assert float(rows[1]["Speed-up"]) == pytest.approx(2**0.85)


def test_without_a_comparison_there_is_no_ratio_and_the_table_says_so(tmp_path):
    table = tables(of_study(study(), tmp_path))["comparison"]
    assert "Speed-up" not in [column.title for column in table.columns]
    assert "There are no ratios" in table.caption


def test_a_single_repeat_has_no_range(tmp_path):
    table = tables(of_study(study(repeats=1), tmp_path))["comparison"]
    index = [column.title for column in table.columns].index("min–max")
    assert {row[index][0] for row in table.rows} == {"–"}


def test_what_all_runs_have_in_common_is_said_once(tmp_path):
    paths = [write_run(tmp_path / name, steps=2) for name in "ab"]
    table = tables(of_runs(paths))["runs"]
    assert "strategy ddp, precision fp32, processes 2" in table.caption
    assert "Strategy" not in [column.title for column in table.columns]


def test_the_goodput_of_all_runs_is_one_line_of_the_facts(tmp_path):
    paths = [write_run(tmp_path / name, steps=2) for name in "ab"]
    for path in paths:
        (path / "attempts").write_text("1 4711 1000 n1\n")
        for name, kind, trained in (("steps", "begin", 0.0), ("epochs", "epoch", 30.0)):
            spent = {"trained": trained, "evaluating": 0.0, "saving": 0.0}
            record = {"kind": kind, "time": 1000 + trained, "facts": {"world_size": 2}, "spent": spent}
            with (path / "records" / f"{name}.jsonl").open("a") as file:
                file.write(json.dumps(record) + "\n")
        (path / "exit_code").write_text("0")
        os.utime(path / "exit_code", (1040, 1040))
    facts = dict(of_runs(paths).facts)
    assert facts["Goodput"].startswith("37.5% over 2 attempts: trained 60 of 160 device-seconds")


def test_a_name_cannot_break_a_latex_table():
    text = one_cell(plain(NASTY)).latex()
    (line,) = [line for line in text.splitlines() if "script" in line]
    assert line.strip().endswith(r"\\")
    cell = line.strip().removesuffix(r"\\")
    for special in "&%$#_":
        assert not re.search(rf"(?<!\\){re.escape(special)}", cell), special
    assert r"\textbackslash{}b\{\}" in cell and "\x1b" not in cell


def test_a_name_cannot_break_a_markdown_table():
    row = one_cell("a|b <i> *c* `d`").markdown().splitlines()[-1]
    assert row == r"| a\|b \<i\> \*c\* \`d\` |"


@pytest.mark.parametrize("formula", ["=1+1", "@SUM(A1)", "+1", "-1"])
def test_a_name_that_a_spreadsheet_would_run_is_text(formula):
    assert one_cell(formula).csv() == f"Name\n'{formula}\n"


def test_a_configuration_is_named_by_what_differs():
    assert [row.name for row in rows_of(study((1, 2)))] == ["1 process", "2 processes"]
    assert {row.series for row in rows_of(study((1, 2)))} == {""}


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (short(0.01234), "0.0123"),
        (short(1234.5), "1,234"),
        (short(1e308), "1e+308"),
        (short(float("nan")), "–"),
        (percent(0.183), "18 %"),
        (percent(0.049), "4.9 %"),
        (listed(["a"]), "a"),
        (listed(["a", "b", "c"]), "a, b and c"),
        (plural(2, "process"), "2 processes"),
        (clipped("runs/a-very-long-name/1", 11), "runs…name/1"),
        (plain("a\x00b\nc\ud800"), "a�b c�"),
    ],
)
def test_texts(shown, expected):
    assert shown == expected


def test_rounding_does_not_put_a_median_outside_of_its_values():
    for thousandths in range(1000, 1200):
        runs = [measured(1, thousandths / 1000, samples=1170)]
        (row,) = rows_of(StudyResults("train.py", "strong", [Configuration({"nproc": 1}, runs)], {}, 1))
        assert row.rate.low <= row.rate.median <= row.rate.high


def test_each_row_has_the_ratio_of_its_own_configuration_whatever_the_order_of_the_study():
    """A grid over strategies lists one process of the second strategy after eight of the first."""
    runs = [
        Configuration(
            {"strategy": strategy, "nproc": n},
            [measured(n, seconds / n, repeat, strategy=strategy) for repeat in range(3)],
        )
        for strategy, seconds in (("fsdp", 24.0), ("ddp", 12.0))
        for n in (4, 2, 1)
    ]
    made = report(StudyResults("x", "strong", runs, {}, 3), baseline="strategy=ddp,nproc=1")
    for row in judged_rows(made):
        assert row.speedup.median == pytest.approx(12.0 / row.seconds.median)


def test_the_summary_names_the_loss_that_the_table_names(tmp_path):
    results = study((1, 2))
    said = largest_loss(results)
    assert said
    assert said[1:] + "." in " ".join(summary(of_study(results, tmp_path)))


def test_the_facts_of_a_study_are_what_a_paper_asks_for(tmp_path):
    made = {
        "command": "rankup scale x --grid nproc=1,2",
        "date": "2026-11-26T10:00:00+00:00",
        "commit": "68a0a950",
    }
    results = study((1, 2))
    facts = {"optimizer": "SGD", "lr": 0.1, "global_batch": 64, "torch": "2.13.0"}
    told = [replace(one, runs=[replace(run, facts={**run.facts, **facts}) for run in one.runs])
            for one in results.configurations]  # fmt: skip
    machine = {"hostname": "node1", "cpu": "EPYC", "cpu_count": 8, "python": "3.11.7"}
    content = of_study(replace(results, configurations=told, machine=machine, made=made), tmp_path)
    shown = dict(content.facts)
    assert (shown["Optimizer"], shown["Learning rate"], shown["Global batch"]) == ("SGD", "0.1", "64")
    assert (shown["Command"], shown["Commit"]) == (made["command"], made["commit"])
    assert shown["Date"].startswith("2026-11-26") and shown["torch"] == "2.13.0"
    assert "EPYC" in shown["Machine"] and "Python 3.11.7" in shown["Software"]
