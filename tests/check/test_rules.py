"""All rules as a set: each is documented, fires on its examples, is silent on its near misses, and its fix works."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rankup.check.check import diagnostics
from rankup.check.example import default_name, files_of, subjects_of
from rankup.check.fixes import fixed
from rankup.check.registry import all_rules

RULES = all_rules()
MORE = Path(__file__).parent / "examples"  # beside the two of each rule's own file


def _examples(rule, word, own):
    """A rule's own examples, and those after a line ``=== WORD`` of its file here."""
    path = MORE / f"{rule.code}.txt"
    parts = re.split(r"^=== (\w+)\n", path.read_text() if path.exists() else "", flags=re.M)
    more = [text for key, text in zip(parts[1::2], parts[2::2], strict=True) if key == word]
    return [pytest.param(rule, text, id=f"{rule.code}-{i}") for i, text in enumerate([*own, *more])]


FIRES = [case for rule in RULES for case in _examples(rule, "fires", rule.fires)]
SILENT = [case for rule in RULES for case in _examples(rule, "silent", rule.silent)]


def found(rule, files):
    return [d for d in diagnostics(subjects_of(files)) if d.rule is rule]


def test_codes_and_names_are_unique_and_well_formed():
    assert len({rule.code for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"RK\d{3}", rule.code)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)


def test_a_rule_lives_in_the_file_that_has_its_name():
    for rule in RULES:
        module = rule.find.__module__.rpartition(".")[2]
        assert module == f"{rule.code}_{rule.name}".lower().replace("-", "_")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_is_documented_and_has_two_examples_and_two_near_misses(rule):
    for text in (rule.what, rule.why, rule.fix):
        assert text and text[0].upper() == text[0] and text.rstrip().endswith((".", ")"))
    assert len(set(rule.fires)) >= 2
    assert len(set(rule.silent)) >= 2


@pytest.mark.parametrize(("rule", "example"), FIRES)
def test_an_example_with_the_mistake_is_found_at_a_place_in_it(rule, example):
    files = files_of(example, default_name(rule))
    matches = found(rule, files)
    assert matches
    for diagnostic in matches:
        assert diagnostic.match.document[diagnostic.match.span].strip()
        assert diagnostic.finding.message


@pytest.mark.parametrize(("rule", "example"), SILENT)
def test_a_near_miss_is_silent(rule, example):
    assert not [d.match.message for d in found(rule, files_of(example, default_name(rule)))]


@pytest.mark.parametrize(("rule", "example"), [case for case in FIRES if case.values[0].safety])
def test_the_fix_gives_a_script_on_which_the_rule_is_silent(rule, example):
    files = files_of(example, default_name(rule))
    matches = found(rule, files)
    assert any(d.match.edits for d in matches)
    repaired = fixed(files, matches)
    assert repaired != files
    assert not [d.match.message for d in found(rule, repaired) if d.match.edits]
    for name, text in repaired.items():
        if name.endswith(".py"):
            ast.parse(text)
