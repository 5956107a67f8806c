"""Published tables: honest ones pass, unfair ones are refused for the right reason, the rest compares nothing."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_pages import HONEST, SILENT, UNFAIR
from studies import configuration, study

from rankup.cli.app import main
from rankup.errors import RankupError
from rankup.findings.finding import Severity
from rankup.scale.published.documents import read_page
from rankup.scale.published.judge import judge
from rankup.scale.published.prose import claims_of
from rankup.scale.published.quantities import devices, number, precision, seconds
from rankup.scale.published.read import read_published
from rankup.scale.results import write_results


def findings(tmp_path, suffix, text):
    published = read_published(tmp_path / f"page{suffix}", text)
    return judge(published.curves, published.claims)


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
    assert all(f.why and f.place and (f.fix or f.severity is Severity.NOTE) for f in found)


@pytest.mark.parametrize("name", SILENT)
def test_what_compares_no_devices_is_an_error_of_use(name, tmp_path):
    suffix, text = SILENT[name]
    with pytest.raises(RankupError, match="compares no numbers of devices") as caught:
        read_published(tmp_path / f"page{suffix}", text)
    assert caught.value.exit_code == 2


def run(tmp_path, capsys, name, text, *options):
    path = tmp_path / name
    if isinstance(text, bytes):
        path.write_bytes(text)
    else:
        path.write_text(text)
    with pytest.raises(SystemExit) as caught:
        main(["check-results", str(path), *options])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return caught.value.code, captured


def test_an_honest_page_exits_with_0_and_shows_what_was_recomputed(tmp_path, capsys):
    code, said = run(tmp_path, capsys, "page.md", HONEST["markdown, strong scaling with ratios"][1])
    assert code == 0
    assert "page.md:5" in said.out
    assert said.out.splitlines()[-1].startswith("passed: 1 note")
    (row,) = [line.split() for line in said.out.splitlines() if line.startswith("  4 GPUs")]
    assert row == ["4", "GPUs", "4", "109.9", "s", "fp32", "256", "3.64", "3.64", "91%"]


def test_an_unfair_page_exits_with_1_and_the_reason(tmp_path, capsys):
    text = UNFAIR["the tutorial: fp32 baseline, the others in mixed precision"][1]
    code, said = run(tmp_path, capsys, "tutorial.md", text)
    assert code == 1
    assert "error: the precision differs: fp32 with 1 GPU, mixed with 2 GPUs, mixed with 4 GPUs" in said.out
    assert "an efficiency of 380%" in said.out


def test_json_holds_tables_and_findings(tmp_path, capsys):
    code, said = run(tmp_path, capsys, "t.csv", "gpus,precision,time_s\n1,fp32,100\n4,bf16,9\n", "--json")
    given = json.loads(said.out)
    assert (code, given["passed"]) == (1, False)
    assert given["tables"][0]["rows"][1]["speedup"] == pytest.approx(100 / 9)
    assert given["tables"][0]["rows"][1]["precision"] == "bf16"
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


def test_a_list_of_objects_is_a_table(tmp_path, capsys):
    rows = [{"num_gpus": 1, "epoch_time": 60.0}, {"num_gpus": 4, "epoch_time": 16.5}]
    code, said = run(tmp_path, capsys, "results.json", json.dumps(rows))
    assert code == 0
    assert "91%" in said.out


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("page.md", "# Nothing\n", "nothing-to-check"),
        ("page.md", b"\xff\xfe\x00\x01", "unreadable-file"),
        ("results.json", '{"version": 1, "runs": []}', "other-version"),
        ("results.json", '{"version": 2, "configurations": [', "bad-results"),
        ("results.json", "[1, 2]", "bad-results"),
        ("table.csv", "", "nothing-to-check"),
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


words = st.sampled_from(
    ["GPUs", "1 GPU", "4 GPUs", "Time (s)", "speedup", "1.9x", "374 %", "fp32", "AMP", "0", "-", "1:02:33", "73.48 s",
     "2 nodes × 4 GPUs", "~5,100 img/s", "batch size", "64", "1024", "±", "∞", "NaN", "1e9", "", "|", "10-20"]
)  # fmt: skip


tables = st.lists(st.lists(words, min_size=1, max_size=4), min_size=1, max_size=5)


@settings(max_examples=150)
@given(tables, st.sampled_from([".md", ".csv", ".rst"]))
def test_no_table_is_a_traceback(rows, suffix):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    text = "\n".join(lines) if suffix == ".md" else "\n".join(",".join(row) for row in rows)
    with contextlib.suppress(RankupError):  # a table that compares nothing
        published = read_published(Path(f"page{suffix}"), text)
        judge(published.curves, published.claims)


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("73.48 s", "", 73.48),
        ("1h 12m", "", 4320),
        ("1:02:33", "", 3753),
        ("6h51m26s", "", 24686),
        ("10:12", "", 612),
        ("480 min (8h)", "", 28800),
        ("~14 hours", "", 50400),
        ("12,5", "min", 750),
        ("1,234.5", "s", 1234.5),
        ("512.4 ± 3.1", "s", 512.4),
        ("12.3±0.2 ms", "", 0.0123),
        ("–", "s", None),
        ("10-12", "s", None),
        ("2000 img/s", "", None),
    ],
)
def test_times_as_people_write_them(text, unit, expected):
    found = seconds(text, unit)
    assert (found and found.value) == (expected if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 nodes × 4 GPUs", ("gpu", 8)),
        ("2 nodes (8 GPUs)", ("gpu", 8)),
        ("8 GPUs on 2 nodes", ("gpu", 8)),
        ("4x A100", ("gpu", 4)),
        ("V100 ×4", ("gpu", 4)),
        ("2n8g", ("gpu", 16)),
        ("single GPU", ("gpu", 1)),
        ("four GPUs, AMP", ("gpu", 4)),
        ("DDP 2×4", ("gpu", 8)),
        ("16 CPU cores", ("cpu", 16)),
        ("3 nodes", ("node", 3)),
        ("ResNet-50", None),
        ("4--512 nodes", None),
    ],
)
def test_devices_as_people_write_them(text, expected):
    assert devices(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FP16 mixed precision", "fp16"),
        ("AMP (bf16)", "bf16"),
        ("bfloat16", "bf16"),
        ("float32", "fp32"),
        ("automatic mixed precision", "mixed"),
        ("TF32", "tf32"),
        ("fp32 and fp16", None),
        ("fast", None),
    ],
)
def test_precisions_as_people_write_them(text, expected):
    assert precision(text) == expected


@pytest.mark.parametrize(
    "sentence",
    [
        "You can use 8 GPUs and mixed precision for a 20x speedup.",
        "On 4 GPUs we are 50x faster than a CPU.",
        "Our kernels are 6x faster than others on 2 GPUs.",
        "With 4 GPUs the speedup is 3.6 over a single GPU.",
        "FP16 gives a 3x speedup.",
    ],
)
def test_sentences_that_claim_nothing_wrong(sentence):
    claims = claims_of(read_page(sentence, "page"))
    assert judge([], claims) == []


@pytest.mark.parametrize("text", ["-5", " −5.2", "-5 images/s"])
def test_a_negative_number_is_none(text: str):
    assert number(text) is None


def test_a_study_without_a_configuration_compares_nothing(tmp_path, capsys):
    write_results(study(), tmp_path / "results.json")
    with pytest.raises(SystemExit) as ended:
        main(["check-results", str(tmp_path / "results.json")])
    assert ended.value.code == 2
    assert "without any configuration" in capsys.readouterr().err
