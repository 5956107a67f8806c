"""A mistake put into a correct script of the corpus by a small edit is found; there is such an edit for each rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants_of_jobs import JOB_MUTANTS, SITE_MUTANTS
from mutants_of_programs import PROGRAM_MUTANTS

from rankup.check.check import diagnostics
from rankup.check.registry import all_rules
from rankup.sites.site import Site
from rule_examples import subjects_of

CORPUS = Path(__file__).parent / "corpus"
MUTANTS = [
    *((None, *mutant) for mutant in JOB_MUTANTS),
    *SITE_MUTANTS,
    *((None, *mutant) for mutant in PROGRAM_MUTANTS),
]


def found(files, site):
    return {d.rule.code for d in diagnostics(subjects_of(files, site))}


def one_job(folder, name):
    """A folder's programs, with the edited job script or, if a program is edited, the one that starts it."""
    paths = [path for path in sorted((CORPUS / folder).iterdir()) if path.is_file()]
    return {
        path.name: path.read_text() for path in paths if path.suffix == ".py" or path.name in (name, "job.sh")
    }


@pytest.mark.parametrize(
    ("profile", "file", "old", "new", "code"),
    MUTANTS,
    ids=[f"{code}-{file}-{i}" for i, (_, file, _, _, code) in enumerate(MUTANTS)],
)
def test_a_mistake_put_into_a_correct_script_is_found(profile, file, old, new, code):
    site = None if profile is None else Site(**profile)
    folder, _, name = file.partition("/")
    files = one_job(folder, name)
    assert old in files[name]
    assert code not in found(files, site)
    files[name] = files[name].replace(old, new)
    assert code in found(files, site)


def test_each_rule_has_a_mutant():
    assert {rule.code for rule in all_rules()} - {code for *_, code in MUTANTS} == set()
