"""Whole job scripts with their programs: what is found is labelled, and a mistake put into a good one is found."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest

from rankup.check.check import diagnostics, read_subjects
from rankup.check.document import Document
from rankup.core.toml_file import read_toml
from rankup.findings.finding import Severity

CORPUS = Path(__file__).parent / "corpus"
LABELS = {**read_toml(CORPUS / "labels.toml", "labels"), **read_toml(CORPUS / "labels-prog.toml", "labels")}
FOLDERS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir() and not path.name.startswith("__"))


def files_of(folder):
    return {path.name: path.read_text() for path in sorted((CORPUS / folder).iterdir()) if path.is_file()}


def found(files, *, notes=False):
    """File → codes, of a folder's files."""
    documents = {name: Document(name, text) for name, text in files.items()}
    jobs = [document for name, document in documents.items() if name.endswith((".sh", ".pbs", ".sbatch"))]
    programs = [document for name, document in documents.items() if name.endswith(".py")]
    subjects = read_subjects(jobs, programs, lambda _, name: documents.get(posixpath.normpath(name)))
    codes = {}
    for diagnostic in diagnostics(subjects):
        if notes or diagnostic.match.severity is not Severity.NOTE:
            codes.setdefault(diagnostic.match.document.path, set()).add(diagnostic.rule.code)
    return codes


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_found_is_what_is_labelled(folder):
    labelled = {
        name.partition("/")[2]: set(codes)
        for name, codes in LABELS.items()
        if name.partition("/")[0] == folder and codes
    }
    assert found(files_of(folder)) == labelled


def test_labels_are_of_files():
    assert [name for name in LABELS if not (CORPUS / name).is_file()] == []


def test_half_of_the_job_scripts_are_correct():
    jobs = [
        path.relative_to(CORPUS).as_posix()
        for path in CORPUS.glob("job-*/*")
        if path.suffix in (".sh", ".pbs")
    ]
    correct = [name for name in jobs if not LABELS.get(name)]
    assert len(jobs) >= 70
    assert 2 * len(correct) >= len(jobs)
