"""Files that the loop of a script writes: a resume says which of them have steps twice, or are emptied."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from rankup.runtime.checkpointing.carried.files import written_files
from runtime.checkpointing.carrying import attempts, begin, step

TWICE, COUNTED, EMPTIED = "was appended at", "is read and written again at", "is emptied by that"


def appends(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    for epoch in run.epochs(2):
        for batch in epoch:
            with open(f"{directory}/log.jsonl", "a") as log:  # noqa: PTH123
                log.write("a step\n")
            step(run, model, opt, batch, stop)


def counts(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    patience = Path(directory) / "patience.json"
    for epoch in run.epochs(2):
        for batch in epoch:
            before = json.loads(patience.read_text()) if patience.exists() else 0
            patience.write_text(json.dumps(before + 1))
            step(run, model, opt, batch, stop)


def empties(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    with (Path(directory) / "log.csv").open("w") as log:
        for epoch in run.epochs(2):
            for batch in epoch:
                log.write("a step\n")
                step(run, model, opt, batch, stop)


def writes_the_whole(directory: str, stop: int) -> None:
    run, model, opt = begin(directory)
    for epoch in run.epochs(2):
        for batch in epoch:
            (Path(directory) / f"step-{run.global_step}.txt").write_text("a step")
            step(run, model, opt, batch, stop)


@pytest.mark.parametrize(
    ("train", "expected"), [(appends, TWICE), (counts, COUNTED), (empties, EMPTIED), (writes_the_whole, "")]
)
def test_a_resume_names_what_no_snapshot_has(train, expected, tmp_path):
    [[first], [second]] = attempts(train, tmp_path, (3, -1))
    assert "writes files" not in first
    assert [text for text in (TWICE, COUNTED, EMPTIED) if text in second] == [expected] * bool(expected)
    assert second.count("writes files that no snapshot has") == bool(expected)


def found(body: str) -> tuple[int, ...]:
    lines = dedent(body).strip().splitlines()
    loop = next(number for number, line in enumerate(lines, 1) if "epochs(" in line)
    files = written_files("\n".join(lines), loop)
    assert files is not None
    return files.appended, files.counted, files.emptied


CASES = {
    "a function of the script appends": (
        """
        def write(row):
            with path.open("ab") as file:
                file.write(row)
        for epoch in run.epochs(2):
            write(epoch)
        """,
        ((2,), (), ()),
    ),
    "rows of SQLite": (
        """
        for epoch in run.epochs(2):
            db.execute("insert into losses values (?)", (1,))
            db.execute("select * from losses")
        """,
        ((2,), (), ()),
    ),
    "a writer of a file that is opened before": (
        """
        file = open("log.csv", "w")
        writer = csv.writer(file)
        for epoch in run.epochs(2):
            writer.writerow([1])
        """,
        ((), (), (1,)),
    ),
    "a cache": (
        """
        for epoch in run.epochs(2):
            if path.exists():
                value = torch.load(path)
            else:
                torch.save(compute(), path)
        """,
        ((), (), ()),
    ),
    "a function with a cache": (
        """
        def features():
            if path.exists():
                return torch.load(path)
            torch.save(1, path)
        for epoch in run.epochs(2):
            features()
        """,
        ((), (), ()),
    ),
    "written, then read": (
        """
        for epoch in run.epochs(2):
            torch.save(model, "best.pt")
            torch.load("best.pt")
        """,
        ((), (), ()),
    ),
    "closed before the loop": (
        """
        with open("settings.json", "w") as file:
            file.write("1")
        for epoch in run.epochs(2):
            file = 1
            print(file)
        """,
        ((), (), ()),
    ),
    "a file of each attempt": (
        """
        file = open(f"log-{time.time()}.csv", "w")
        for epoch in run.epochs(2):
            file.write("1")
        """,
        ((), (), ()),
    ),
    "not in the loop": (
        """
        def write():
            open("log", "a")
        for epoch in run.epochs(2):
            pass
        write()
        """,
        ((), (), ()),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_which_files_a_loop_writes(name):
    body, expected = CASES[name]
    assert found(body) == expected
