"""``rankup predict`` as a user meets it: a table and advice, or one clear error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import calling
from rankup.scale.results import Configuration, Measured, StudyResults, write_results

CURVE = "1:348.62 4:1226.38 8:2632.93 16:5115.4"


call = calling("predict")


def study(folder: Path, **more) -> Path:
    def configuration(nodes: int, each: int, seconds: float) -> Configuration:
        count = nodes * each
        parts = {"data": 0.001, "compute": 0.09, "communication": 0.0, "optimizer": 0.005}
        runs = [
            Measured(repeat, seconds, 32 * count * 100, 100, nodes, count, 1, "ddp", "cuda", breakdown=parts)
            for repeat in (1, 2, 3)
        ]
        return Configuration({"nodes": nodes, "gpus": each}, runs)

    grid = [configuration(1, 2, 10.0), configuration(2, 2, 11.0)]
    path = folder / "results.json"
    write_results(StudyResults("train.py", "weak", grid, {}, 3, **more), path)
    return path


def test_a_published_curve_is_predicted_beside_the_linear_baseline(capsys):
    code, out, err = call(capsys, "--points", CURVE, "--gpus-per-node", 8, "--to", 32)
    assert (code, err) == (0, "")
    row = next(line.split() for line in out.splitlines() if line.startswith("4 × 8"))
    assert row[3:] == ["32", "10,087", "9,281–10,962", "10,231", "90%"]
    assert "T(n) = T(1) + e·2(n−1)/n" in out
    assert "wait in the queue: unknown" in out


def test_json_has_all_of_it(capsys):
    code, out, _ = call(capsys, "--points", CURVE, "--gpus-per-node", 8, "--to", "32,8x8", "--json")
    said = json.loads(out)
    assert code == 0
    assert [one["devices"] for one in said["predictions"]] == [32, 64]
    first = said["predictions"][0]
    assert first["low"] < first["rate"] < first["high"] < 1.1 * first["linear"]
    assert [one["devices"] for one in said["sizes"]] == [1, 4, 8, 16, 32, 64]


def test_a_study_is_predicted_without_any_other_option(capsys, tmp_path):
    study(tmp_path)
    code, out, _ = call(capsys, tmp_path)
    assert code == 0
    assert next(line for line in out.splitlines() if line.startswith("4 × 2"))
    # 64 and 128 samples per step: each device has 32 per 0.1 s and per 0.11 s
    assert "640" in out
    assert "1,164" in out


def test_a_deadline_is_answered_with_a_size(capsys):
    words = ("--points", CURVE, "--gpus-per-node", 8, "--to", 32, "--samples", "115e6")
    code, out, _ = call(capsys, *words, "--deadline", "4h")
    assert code == 0
    assert "smallest within 4 h 00 min: 4 × 8 (90% efficient, 3 h 10 min, 101.3 device-hours)" in out
    assert "smallest within 1 h 00 min: none of these sizes" in call(capsys, *words, "--deadline", "1h")[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], "no-points"),
        (["--points", ""], "no-points"),
        (["--points", "8:100", "--gpus-per-node", "8"], "one-point"),
        (["--points", "1:100 8:700", "--gpus-per-node", "8", "--to", "32"], "no-node-boundary"),
        (["--points", "8:100 8:200", "--gpus-per-node", "8"], "duplicate-point"),
        (["--points", "8:0 16:200", "--gpus-per-node", "8"], "bad-rate"),
        (["--points", "8:nan 16:200", "--gpus-per-node", "8"], "bad-rate"),
        (["--points", "eight:100", "--gpus-per-node", "8"], "bad-size"),
        (["--points", "8:100 16:200"], "unknown-nodes"),
        (["--points", "8:100 16:200", "--gpus-per-node", "0"], "invalid-value"),
        (["--points", "8:100 16:200", "--gpus-per-node", "8", "--to", "20"], "partial-node"),
        (["--points", "8:100 16:200", "--gpus-per-node", "8", "--scaling", "odd"], "bad-scaling"),
        (["--points", "8:100 16:200", "--gpus-per-node", "8", "--deadline", "4h"], "unknown-work"),
        (["--points", "8:1 16:2", "--gpus-per-node", "8", "--deadline", "4", "--samples", "9"], "bad-duration"),
        (["--points", "8:1 16:2", "--gpus-per-node", "8", "--samples", "nan"], "bad-samples"),
        (["none.json"], "bad-results"),
        (["none.csv"], "bad-table"),
        (["none.json", "--points", "8:100 16:200"], "two-sources"),
        (["--points", "8:1 16:2", "--gpus-per-node", "8", "--node-mtbf", "0"], "bad-failures"),
        (["--points", "8:1 16:2", "--gpus-per-node", "8", "--to", "72"], "too-far"),
        (["--points", "1:100 2:190", "--gpus-per-node", "8", "--to", "4"], "too-few-points"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(capsys, monkeypatch, tmp_path, words, code):
    monkeypatch.chdir(tmp_path)
    exit_code, out, err = call(capsys, *words)
    assert exit_code == 2
    assert f"[{code}]" in err
    assert out == ""


def test_results_of_another_version_are_refused(capsys, tmp_path):
    path = study(tmp_path)
    path.write_text(path.read_text().replace('"version": 2', '"version": 1'))
    code, _, err = call(capsys, path)
    assert code == 2
    assert "[other-version]" in err


def test_a_study_has_its_own_kind_of_scaling(capsys, tmp_path):
    assert "[other-scaling]" in call(capsys, study(tmp_path), "--scaling", "strong")[2]


def test_points_that_fall_are_predicted_with_a_warning(capsys):
    code, out, _ = call(capsys, "--points", "8:770 16:600", "--gpus-per-node", 8, "--to", 32)
    assert code == 0
    assert "[slower-with-more]" in out


def test_nodes_that_fail_are_told_how_often_to_save(capsys):
    words = ("--points", CURVE, "--gpus-per-node", 8, "--to", 64, "--node-mtbf", 20000, "--save-seconds", 30)
    code, out, _ = call(capsys, *words)
    assert code == 0
    head, *rows = out.splitlines()
    assert head.split()[-3:] == ["save", "every", "goodput"]
    row = next(line for line in rows if line.startswith("8 × 8"))
    assert "6 h 26 min" in row and row.endswith("99.7%")  # √(2 · 30 s · 2,500 h)
    said = json.loads(call(capsys, *words, "--json")[1])
    assert said["sizes"][-1]["save_every"] == pytest.approx((2 * 30 * 20000 * 3600 / 8) ** 0.5, rel=0.01)


def test_a_table_of_a_spreadsheet_may_begin_with_a_mark(capsys, tmp_path):
    (tmp_path / "curve.csv").write_text("\ufeffdevices,rate\n8,800\n16,1500\n", encoding="utf-8")
    code, out, _ = call(capsys, tmp_path / "curve.csv", "--gpus-per-node", "8")
    assert (code, "1,500" in out) == (0, True)
