"""Published tables: honest ones pass, unfair ones are refused for the right reason, and no cell is dropped silently."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from studies import configuration, study

from rankup.cli.app import main
from rankup.errors import RankupError
from rankup.findings.finding import Severity
from rankup.scale.published.cells import Unreadable, count, number, seconds
from rankup.scale.published.judge import judge
from rankup.scale.published.table import read_page
from rankup.scale.results import write_results

# name → (suffix, text, codes of warnings)
HONEST = {
    "strong scaling, with its ratios": (
        ".md",
        """# Scaling
The efficiency is 91 % on 4 GPUs, a speed-up of 3.64.

| GPUs | Precision | Global batch | Time (s) | Speed-up | Efficiency |
|---|:--|--:|---|---|---|
| 1 | fp32 | 256 | 400.2 | 1.00 | 100% |
| 4 GPUs | float32 | 256 | 109.9 | 3.64x | 91 % |
""",
        set(),
    ),
    "weak scaling: rates, and the batch of each device": (
        ".csv",
        "nodes,gpus_per_node,batch_per_gpu,samples/s\n1,8,64,921.3\n2,8,64,1499.4\n1,1,64,119.6\n",
        set(),
    ),
    "two models and two precisions, each with its baseline": (
        ".csv",
        "model;GPUs;dtype;throughput [img/s];efficiency\n"
        "ResNet;1;fp32;367.29;100\nResNet;8;fp32;2,887.65;98.3\nResNet;1;amp;802.9;100\nResNet;8;amp;6154.66;95.8\n"
        "VGG;1;fp32;233;100\nVGG;8;fp32;1701;91.3\n",
        set(),
    ),
    "accumulated batches that are the same in all": (
        ".csv",
        "gpus,micro batch size,gradient accumulation steps,time (min)\n1,32,8,80\n4,32,2,22\n8,32,1,12\n",
        {"unequal-accumulation"},
    ),
    "times as people write them": (".csv", "gpus,time\n1,1:02:33\n2,33 min\n4,17m 10s\n8,560 s\n", set()),
    "a row that its author left empty": (
        ".csv",
        "gpus,time (s)\n1,100\n2,OOM\n4,27\n",
        {"row-left-out"},
    ),
    "a batch of which nobody says what it is": (
        ".csv",
        "gpus,batch size,time (s)\n1,64,100\n4,64,27\n",
        {"unclear-batch"},
    ),
}
# name → (suffix, text, codes of errors)
UNFAIR = {
    "fp32 on one GPU, mixed precision on four": (
        ".md",
        "| GPUs | AMP | Time |\n|---|---|---|\n| 1 | no | 73.48 s |\n| 4 | yes | 4.83 s |\n",
        {"unequal-precision", "superlinear"},
    ),
    "a larger global batch": (
        ".csv",
        "gpus,batch per gpu,time (s)\n1,64,100\n4,64,27\n",
        {"unequal-global-batch"},
    ),
    "gradient accumulation that changes the global batch": (
        ".csv",
        "gpus,batch per gpu,accumulation,time (s)\n1,64,1,100\n4,16,8,27\n",
        {"unequal-global-batch"},
    ),
    "fewer epochs": (".csv", "gpus,epochs,time (s)\n1,10,100\n4,8,26\n", {"unequal-epochs"}),
    "a worse model": (".csv", "gpus,time (s),accuracy\n1,100,95.1\n4,26,91.2\n", {"accuracy-differs"}),
    "accuracies in percent below one": (".csv", "gpus,time (s),accuracy\n1,100,75\n4,26,0.9\n", {"accuracy-differs"}),
    "a ratio that does not follow": (".csv", "gpus,time (s),speedup\n1,100,1\n4,30,3.9\n", {"wrong-ratio"}),
    "no row of one device": (".csv", "gpus,time (s),speedup\n4,100,1\n16,27,3.7\n", {"baseline-missing"}),
    "steps of an unknown batch": (".csv", "gpus,step time (ms)\n1,100\n4,110\n", {"samples-unknown"}),
    "devices with a remark": (
        ".csv",
        "gpus,time (s)\n1,100\n16 (2 nodes),8\n32 (batch 8192),1\n",
        {"row-left-out"},
    ),
    "a list of times": (".csv", 'gpus,time (s)\n1,100\n4,"[3:30,4:24]"\n', {"row-left-out"}),
    "another unit in one row": (".csv", "gpus,throughput\n1,100 img/s\n4,390 tokens/s\n", {"row-left-out"}),
    "an efficiency above 100 % in the text": (".md", "We reach a scaling efficiency of 104 %.\n", {"superlinear"}),
    "a speed-up above the devices in the text": (
        ".md",
        "With 4 A100 GPUs and mixed precision this is\na 15.2x speedup.\n",
        {"superlinear"},
    ),
}  # fmt: skip


def findings(tmp_path, suffix, text):
    path = tmp_path / f"page{suffix}"
    path.write_text(text)
    return judge(read_page(path)).findings


def codes(found, severity):
    return {finding.code for finding in found if finding.severity is severity}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_table_passes(name, tmp_path):
    suffix, text, warnings = HONEST[name]
    found = findings(tmp_path, suffix, text)
    assert codes(found, Severity.ERROR) == set()
    assert codes(found, Severity.WARNING) == warnings


@pytest.mark.parametrize("name", UNFAIR)
def test_an_unfair_table_is_refused_for_its_reason(name, tmp_path):
    suffix, text, errors = UNFAIR[name]
    found = findings(tmp_path, suffix, text)
    assert codes(found, Severity.ERROR) == errors
    assert all(one.why and one.place for one in found)


@pytest.mark.parametrize(
    "text",
    [
        "Two nodes with 4 GPUs each: on 2 nodes and 4 GPUs a speed-up of 7.4.",
        "On 4 GPUs the speed-up over a CPU is 50.",
        "The efficiency stays at 98 %. The energy of 120 % is another matter.",
        "On 2 nodes we measure a speed-up of 7.4.",
        "```\n4 GPUs: speed-up 15\n```",
    ],
)
def test_sentences_that_claim_nothing_impossible(text, tmp_path):
    assert findings(tmp_path, ".md", text) == []


def run(tmp_path, capsys, name, text, *options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SystemExit) as caught:
        main(["check-results", str(path), *options])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return caught.value.code, captured


def test_an_honest_page_exits_with_0_and_shows_what_was_recomputed(tmp_path, capsys):
    code, said = run(tmp_path, capsys, "page.md", HONEST["strong scaling, with its ratios"][1])
    assert code == 0
    assert "page.md:4" in said.out
    assert said.out.splitlines()[-1] == "passed: 1 note"
    (row,) = [line.split() for line in said.out.splitlines() if line.startswith("  4 processes")]
    assert row == ["4", "processes", "4", "109.9", "s", "fp32", "256", "3.64", "3.64", "91%"]


def test_rows_and_columns_that_are_left_out_are_counted_and_named(tmp_path, capsys):
    text = "gpus,time (s),remarks\n1,100,\n32 (batch 8192),4,fast\n4,26,\n"
    code, said = run(tmp_path, capsys, "table.csv", text)
    assert code == 1
    assert "rows judged: 2, rows left out: 1" in said.out
    assert "columns left out: remarks" in said.out
    assert "gpus: '32 (batch 8192)' is not one whole number above 0" in said.out
    assert "table.csv:3" in said.out


def test_json_holds_the_table_and_the_findings(tmp_path, capsys):
    code, said = run(tmp_path, capsys, "t.csv", "gpus,precision,time_s\n1,fp32,100\n4,bf16,9\n", "--json")
    given = json.loads(said.out)
    assert (code, given["passed"]) == (1, False)
    assert given["table"]["rows"][1]["speedup"] == pytest.approx(100 / 9)
    assert given["table"]["rows"][1]["precision"] == "bf16"
    assert {finding["code"] for finding in given["findings"]} >= {"unequal-precision", "superlinear"}


def test_a_study_of_rankup_is_judged_as_rankup_scale_does(tmp_path, capsys):
    fair = tmp_path / "fair.json"
    write_results(study(configuration(1, 10, 10.1, 10.2), configuration(2, 5.4, 5.5, 5.6)), fair)
    code, said = run(tmp_path, capsys, "results.json", fair.read_text())
    assert code == 0
    assert "against none, 1 process" in said.out
    unfair = tmp_path / "unfair.json"
    write_results(study(configuration(1), configuration(2, precision="bf16")), unfair)
    code, said = run(tmp_path, capsys, "results.json", unfair.read_text())
    assert code == 1
    assert "unequal-precision" in said.out


TWO = "| GPUs | Time (s) |\n|---|---|\n| 1 | 9 |\n\n| GPUs | Time (s) |\n|---|---|\n| 1 | 9 |\n"


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("page.md", "# Nothing\n", "nothing-to-check"),
        ("page.md", b"\xff\xfe\x00\x01", "unreadable-file"),
        ("page.md", TWO, "several-tables"),
        ("page.tex", r"\begin{tabular}", "unreadable-file"),
        ("results.json", '{"version": 1, "runs": []}', "other-version"),
        ("results.json", '{"version": 2, "configurations": [', "bad-results"),
        ("results.json", "[1, 2]", "bad-results"),
        ("table.csv", "", "nothing-to-check"),
        ("table.csv", "gpus,time (s),time (min)\n1,1,1\n", "unclear-columns"),
    ],
)
def test_what_cannot_be_read_is_one_error_with_code_2(name, text, code, tmp_path, capsys):
    exit_code, said = run(tmp_path, capsys, name, text)
    assert exit_code == 2
    assert f"[{code}]" in said.err


def test_a_file_that_is_not_there(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["check-results", str(tmp_path / "none.md")])
    assert caught.value.code == 2
    assert "[unreadable-file]" in capsys.readouterr().err


def test_a_study_without_a_configuration_compares_nothing(tmp_path, capsys):
    write_results(study(), tmp_path / "results.json")
    with pytest.raises(SystemExit) as ended:
        main(["check-results", str(tmp_path / "results.json")])
    assert ended.value.code == 2
    assert "without any configuration" in capsys.readouterr().err


words = st.sampled_from(
    ["GPUs", "1", "4 GPUs", "Time (s)", "speedup", "1.9x", "374 %", "fp32", "AMP", "0", "-", "1:02:33", "73.48 s",
     "2 × 4", "~5,100 img/s", "batch size", "64", "1024", "±", "∞", "NaN", "1e9", "", "|", "10-20"]
)  # fmt: skip


@settings(max_examples=60)
@example([["GPUs", "Time (s)"], ["-"]], ".md")
@given(
    st.lists(st.lists(words, min_size=1, max_size=4), min_size=1, max_size=5),
    st.sampled_from([".md", ".csv"]),
)
def test_no_table_is_a_traceback_and_every_row_is_judged_or_named(tmp_path_factory, rows, suffix):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    path = tmp_path_factory.mktemp("page") / f"page{suffix}"
    path.write_text("\n".join(lines) if suffix == ".md" else "\n".join(",".join(row) for row in rows))
    with contextlib.suppress(RankupError):  # a table that compares nothing
        page = read_page(path)
        judge(page)
        if (
            page.table is not None
            and suffix == ".md"
            and not any("|" in cell for row in rows for cell in row)
        ):
            assert len(page.table.entries) + len(page.table.left_out) == len(rows) - 1


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("73.48 s", "", 73.48),
        ("1h 12m", "", 4320),
        ("1:02:33", "", 3753),
        ("10:12", "", 612),
        ("1,234.5", "s", 1234.5),
        ("12.3±0.2 ms", "", 0.0123),
        ("12.5", "min", 750),
        ("12,5", "min", None),
        ("480 min (8h)", "", None),
        ("~14 hours", "", None),
        ("10-12", "s", None),
        ("[3:30,4:24]", "s", None),
        ("2000 img/s", "", None),
        ("-5", "s", None),
        ("0", "s", None),
    ],
)
def test_a_time_is_read_as_a_whole_or_not_at_all(text, unit, expected):
    if expected is None:
        with pytest.raises(Unreadable):
            seconds(text, unit)
    else:
        assert seconds(text, unit).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8", 8), ("1,024", 1024), ("8 GPUs", 8), ("2 × 4", 8), ("2x4 GPUs", 8), ("16 (2 nodes)", None), ("4.5", None),
     ("32 (batch 8192)", None), ("0", None), ("single", None)],
)  # fmt: skip
def test_a_count_is_read_as_a_whole_or_not_at_all(text, expected):
    if expected is None:
        with pytest.raises(Unreadable):
            count(text)
    else:
        assert count(text) == expected


def test_a_number_knows_what_rounding_may_have_taken():
    assert number("3.64x")[0].half == pytest.approx(0.005)
    assert number("2,887 img/s") == (number("2887")[0], "img/s")
