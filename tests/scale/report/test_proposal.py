"""The scalability report for a centre: what was measured, in three formats, and a list of what is missing."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rankup.cli.app import main
from rankup.errors import RankupError
from rankup.scale.report.content import Content, of_study
from rankup.scale.report.proposal import Proposal, proposal, write_for
from rankup.scale.results import Configuration, StudyResults
from report_inputs import breakdown, compared, measured, study, write_run, write_study

SCRIPT = "#!/bin/bash\n#SBATCH --nodes=4\n  echo 'it is \\$5 & 50 %_'\n"


def on_nodes(folder: Path, counts: tuple[int, ...], *, exponent: float = 0.95, gpus: int = 4) -> StudyResults:
    """A study of jobs on whole nodes of four GPUs, with the runs that it was measured from."""
    configurations = []
    for count in counts:
        runs = []
        for repeat in (1, 2, 3):
            path = write_run(folder / f"n{count}-{repeat}", gpus=gpus, hosts=count, samples=20)
            (path / "job.sh").write_text(SCRIPT.replace("nodes=4", f"nodes={count}"))
            runs.append(
                measured(
                    4 * count,
                    1200 / count**exponent * (1 + 0.002 * repeat),
                    repeat,
                    nodes=count,
                    device_type="cuda",
                    strategy="ddp",
                    breakdown=breakdown(count),
                    path=str(path),
                )
            )
        configurations.append(Configuration({"nodes": count}, runs))
    return replace(study(), configurations=configurations)


def content(results: StudyResults, folder: Path) -> Content:
    return of_study(results, folder, rows=compared(results))


def made(results: StudyResults, folder: Path, centre: str = "csc") -> Proposal:
    return proposal(content(results, folder), folder, centre)


def test_a_study_that_shows_all_leaves_only_the_words_of_the_author(tmp_path):
    report = made(on_nodes(tmp_path, (1, 2, 4)), tmp_path)
    assert [one for one in report.missing if not one.startswith("your words: ")] == []
    assert len(report.missing) == 2
    times, use = report.tables
    assert [[cell[0] for cell in row[1:4]] for row in times.rows] == [
        ["1", "4", "3"],
        ["2", "8", "3"],
        ["4", "16", "3"],
    ]
    assert 0.9 < float(times.rows[-1][6][0]) < 1 and times.rows[0][6][0] == "1.00"
    assert all(80 < float(row[1][1]) < 95 for row in use.rows)
    assert "--nodes=4\n" in report.script and "docs.csc.fi" in report.source


@pytest.mark.parametrize(
    ("counts", "change", "words"),
    [
        ((1, 2), {}, "at least 3 numbers of nodes: the study has 2 numbers of nodes (1, 2)"),
        ((1, 2, 4), {"exponent": 0.7}, "an efficiency of 75 %: "),
        ((1, 2, 4), {"gpus": 0}, "the use of the GPUs: no node was sampled"),
    ],
)
def test_what_the_study_does_not_show_is_listed(tmp_path, counts, change, words):
    missing = made(on_nodes(tmp_path, counts, **change), tmp_path).missing
    assert any(words in one for one in missing), missing
    assert len([one for one in missing if not one.startswith("your words")]) == 1


def test_of_a_study_on_a_laptop_everything_is_missing_and_nothing_is_invented(tmp_path):
    report = made(replace(study(), scaling="weak"), tmp_path)
    missing = "\n".join(report.missing)
    for words in (
        "numbers of nodes",
        "a shortest training of",
        "weak scaling",
        "the GPUs",
        "the centre's scheduler",
    ):
        assert words in missing
    assert report.script == "" and len(report.tables) == 1


@pytest.mark.slow
def test_the_three_formats_hold_the_same_and_are_the_same_again(tmp_path):
    results = on_nodes(tmp_path, (1, 2, 4))
    paths = write_for("csc", content(results, tmp_path), tmp_path, tmp_path / "report")
    markdown, latex, pdf = (path.read_bytes() for path in paths)
    assert [path.name for path in paths] == ["proposal-csc.md", "proposal-csc.tex", "proposal-csc.pdf"]
    assert f"```bash\n{SCRIPT}```" in markdown.decode() and "(figures/efficiency.png)" in markdown.decode()
    assert SCRIPT.strip() in latex.decode() and r"\includegraphics{figures/efficiency.pdf}" in latex.decode()
    assert latex.decode().count(r"\begin{") == latex.decode().count(r"\end{")
    assert pdf.startswith(b"%PDF") and pdf.count(b"/Type /Page /") >= 5
    again = write_for("csc", content(results, tmp_path), tmp_path, tmp_path / "report")
    assert [path.read_bytes() for path in again] == [markdown, latex, pdf]


@pytest.mark.slow
def test_the_latex_document_compiles_and_nothing_is_wider_than_its_pages(tmp_path, monkeypatch):
    """Where there is no LaTeX, only the lines of the script are looked at."""
    monkeypatch.setattr("rankup.scale.report.proposal.all_pictures", lambda content: [])  # they take long
    long = "srun --cpu-bind=mask_cpu:" + ",".join(["fe000000"] * 40) + " é × ’ python α.py"
    results = on_nodes(tmp_path, (1, 2, 4))
    for script in tmp_path.glob("*/job.sh"):
        script.write_text(f"{SCRIPT}  {long}\n")
    shown = replace(content(results, tmp_path), title="α ≥ 中 of {}_\\")
    _, latex, _ = write_for("csc", shown, tmp_path, tmp_path / "report")
    lines = latex.read_text().partition("verbatim}\n")[2].partition("\\end{verbatim}")[0].splitlines()
    assert long.replace("α", "U+03B1") in "".join(lines) and max(map(len, lines)) <= 104
    if shutil.which("pdflatex"):
        options = ["-interaction=nonstopmode", "-halt-on-error", "-jobname=compiled", latex.name]
        done = subprocess.run(["pdflatex", *options], cwd=latex.parent, capture_output=True, text=True)
        assert done.returncode == 0 and "Overfull" not in done.stdout, done.stdout


@pytest.mark.slow
def test_the_command_writes_it_beside_the_report_of_a_study_and_knows_no_other_centre(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("rankup.scale.report.write.all_pictures", lambda content: [])  # they take long
    write_study(tmp_path / "study", on_nodes(tmp_path, (1, 2, 4)))
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path / "study"), "--for", "generic"])
    assert not ended.value.code
    assert (tmp_path / "study" / "report" / "proposal-generic.pdf").exists()
    assert "proposal-generic.md" in capsys.readouterr().out
    with pytest.raises(RankupError, match="unknown centre 'cscc'; did you mean 'csc'") as wrong:
        made(study(), tmp_path, "cscc")
    assert wrong.value.code == "unknown-centre"
