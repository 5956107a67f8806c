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
# RULE/fires_* and RULE/silent_*: the examples that do not stand beside the rule.
EXAMPLES = Path(__file__).parent / "examples"


def cases(kind):
    """Each rule with each of its examples: those beside it, and the files of its folder."""
    for rule in RULES:
        for i, text in enumerate(getattr(rule, kind)):
            yield pytest.param(rule, text, id=f"{rule.code}-{i}")
        for path in sorted((EXAMPLES / rule.code.lower()).glob(f"{kind}_*")):
            yield pytest.param(rule, path.read_text(), id=f"{rule.code}-{path.name}")


FIRES, SILENT = list(cases("fires")), list(cases("silent"))


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


def test_each_folder_of_examples_is_of_a_rule():
    assert {path.name for path in EXAMPLES.iterdir()} <= {rule.code.lower() for rule in RULES}
    assert all(re.fullmatch(r"(fires|silent)_\w+\.(py|sh|txt)", path.name) for path in EXAMPLES.glob("*/*"))


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
    if not any(d.match.edits for d in matches) and example not in rule.fires:
        return  # a mistake of a rule with fixes that has none itself
    repaired = fixed(files, matches)
    assert repaired != files
    assert not [d.match.message for d in found(rule, repaired) if d.match.edits]
    for name, text in repaired.items():
        if name.endswith(".py"):
            ast.parse(text)
