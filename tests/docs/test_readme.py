"""The README is true: its diff, its commands, its numbers; and links of all documents lead somewhere."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from statistics import median

import pytest

from flaky import aborts_at_exit
from pages import ROOT, SCRIPTS, blocks, commands, missing, run_page

README = ROOT / "README.md"
PAGES_OF_THE_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md", "AGENTS.md", "SKILL.md")
DOCUMENTS = [README, *(ROOT / name for name in PAGES_OF_THE_ROOT), *sorted((ROOT / "docs").rglob("*.md"))]
RESULTS = ROOT / "benchmarks" / "results"
KILL = "kill -9 $!"
#: The page says when to kill; here the shell waits until then.
WAIT = (
    'until grep -q "epoch 8:" runs/killed/*/logs/job.log 2>/dev/null; do sleep 0.1; done; kill -9 $!; wait $!'
)


def body(script: str) -> list[str]:
    """The lines of an example without its docstring."""
    text = (SCRIPTS / script).read_text()
    first = ast.parse(text).body[0]
    return text.splitlines()[(first.end_lineno or 0) :]


def squeezed(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip()]


def test_the_diff_is_that_of_the_two_scripts():
    (diff,) = blocks(README, "diff")
    before = [line[1:] for line in diff.splitlines() if not line.startswith("+")]
    after = [line[1:] for line in diff.splitlines() if not line.startswith("-")]
    assert squeezed(before) == squeezed(body("plain.py"))
    assert squeezed(after) == squeezed(body("train.py"))


@pytest.mark.slow
@aborts_at_exit
@pytest.mark.usefixtures("warm_python")  # the folder that is first on PATH
def test_a_killed_run_is_resumed_to_the_same_file(tmp_path):
    folder = tmp_path / "tutorial"
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    printed = []
    for command, code, text in run_page(README, folder, {KILL: WAIT}):
        assert code == (137 if command.line == KILL else 0), f"{command.line}: code {code}\n{text}"
        printed.append(text)
    shown = [line for command in commands(README) for line in command.shown]
    # Another processor may round otherwise: what counts is that the run and the resumed one agree.
    masked = [re.sub(r"\d\.\d{6}|[0-9a-f]{64}|step-\d+: epoch \d+, step \d+", "…", line) for line in shown]
    assert not missing(masked, "".join(printed))
    hashes = re.findall(r"^([0-9a-f]{64})  model.pt$", "".join(printed), re.M)
    assert len(hashes) == 2
    assert hashes[0] == hashes[1]


def medians(bench: str, against: str = "") -> dict[str, float]:
    """Of each contender; or of its ratios to ``against``, round by round."""
    contenders = json.loads((RESULTS / f"{bench}.json").read_text())["contenders"]
    rounds = {name: value["rounds"] for name, value in contenders.items()}
    other = rounds.get(against) or [1.0] * max(map(len, rounds.values()))
    return {
        name: median(one / two for one, two in zip(mine, other, strict=False))
        for name, mine in rounds.items()
    }


def test_the_numbers_of_the_table_are_those_of_the_benchmarks():
    step, resume, startup = (
        medians("steps", "plain loop, DataLoader, 4"),
        medians("resume"),
        medians("startup"),
    )
    expected = {
        "Time of a step": [step[f"{name}, 4"] for name in ("ours, DataLoader", "Accelerate", "Fabric")],
        "Resume in the middle": [resume["ours"], resume["Accelerate"]],
        "`--help`": [startup["rankup --help"], startup["torchrun --help"]],
    }
    rows = [line for line in README.read_text().splitlines() if line.startswith("| ")]
    for head, values in expected.items():
        (row,) = (row for row in rows if row.startswith(f"| {head}"))
        shown = re.findall(r"\[([\d.]+)(?: s)?\]", row)
        assert [
            f"{value:.{len(text.partition('.')[2])}f}" for value, text in zip(values, shown, strict=True)
        ] == shown


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target
