"""Copies of what a script wrote without and with an interruption, and where they differ first."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankup.verify.two_files import RESUMED, UNINTERRUPTED, Copies, TwoFiles, first_difference

LONG = "x" * 2_000_000


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        ("a\nloss 0.5\n", "a\nloss 0.25\n", "line 2 is 'loss 0.25' after a resume, and 'loss 0.5' without one"),
        ("a\n", "a\nb\n", "line 2 is 'b' after a resume, and missing without one"),
        ("a\nb", "", "line 1 is missing after a resume, and 'a' without one"),
        ("loss 0.55", "loss 0.5", "line 1 is 'loss 0.5' after a resume, and 'loss 0.55' without one"),
        ("é1\r\n", "é2\r\n", "line 1 is 'é2' after a resume, and 'é1' without one"),
        (f"{LONG}\n{LONG}é1{LONG}", f"{LONG}\n{LONG}é2{LONG}", f"line 2 is '…{'x' * 22}é2{'x' * 39}…' after a resume, "
         f"and '…{'x' * 22}é1{'x' * 39}…' without one"),
        (b"\0\1\2", b"\0\1\3", "byte 2 is the first that differs"),
        (b"\xff" * 9, b"\xff" * 8, "byte 8 is the first that differs; it has 8 bytes after a resume, "
         "and 9 without one"),
        ("a\n", "a", "byte 1 is the first that differs; it has 1 bytes after a resume, and 2 without one"),
        ("a", "a", ""),
    ],
)  # fmt: skip
def test_the_first_difference_is_a_line_of_text_or_a_byte(tmp_path: Path, mine, theirs, said):
    for name, content in (("mine", mine), ("theirs", theirs)):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert first_difference(tmp_path / "mine", tmp_path / "theirs") == said


def test_bytes_are_not_told_of_a_file_whose_values_are(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"\0\1")
    (tmp_path / "b").write_bytes(b"\0\2")
    assert first_difference(tmp_path / "a", tmp_path / "b", of_bytes=False) == ""


def test_only_what_differs_is_kept_and_both_copies_are_named_as_they_can_be_typed(
    tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    copies = Copies(tmp_path / "proof" / "written")
    log, same, gone = (str(tmp_path / "out" / name) for name in ("log", "same", "gone"))
    (tmp_path / "out").mkdir()
    for training, text in ((UNINTERRUPTED, "1"), (RESUMED, "2")):
        Path(log).write_text(text)
        Path(same).touch()
        Path(gone).write_text("x")
        copies.keep(training, [log, same, gone] if training == UNINTERRUPTED else [log])
    assert copies.of([log, gone], missing=[gone], named=[]) == [
        TwoFiles(
            ("proof/written/uninterrupted/out/log", "proof/written/resumed/out/log"),
            "line 1 is '2' after a resume, and '1' without one",
        ),
        TwoFiles(("proof/written/uninterrupted/out/gone",), "it is not there after a resume"),
    ]
    assert sorted(path.name for path in tmp_path.rglob("proof/written/*/out/*")) == ["gone", "log", "log"]
    copies.drop()
    assert not (tmp_path / "proof" / "written").exists()


def test_what_does_not_fit_is_left_out(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("rankup.verify.two_files.MOST_KEPT", 5)
    for name, size in (("a", 3), ("b", 3), ("c", 2)):
        (tmp_path / name).write_bytes(b"x" * size)
    Copies(tmp_path / "proof").keep(RESUMED, [str(tmp_path / name) for name in ("a", "b", "c", "not-there")])
    assert sorted(path.name for path in (tmp_path / "proof").rglob("*") if path.is_file()) == ["a", "c"]
