"""All rules as a set: each is documented, fires on its examples, is silent on its near misses, and its fix works."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rankup.check.check import diagnostics
from rankup.check.fixes import fixed
from rankup.check.registry import all_rules
from rule_examples import default_name, files_of, subjects_of

RULES = all_rules()
# RULE/fires_* and RULE/silent_*: the examples that do not stand beside the rule.
EXAMPLES = Path(__file__).parent / "examples"


def examples(rule, kind):
    """What to call it → its text: of those beside the rule, and of the files of its folder."""
    files = sorted((EXAMPLES / rule.code.lower()).glob(f"{kind}_*"))
    return dict(enumerate(getattr(rule, kind))) | {path.name: path.read_text() for path in files}


each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


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


@each_rule
def test_a_rule_is_documented_and_has_two_examples_and_two_near_misses(rule):
    for text in (rule.what, rule.why, rule.fix):
        assert text and text[0].upper() == text[0] and text.rstrip().endswith((".", ")"))
    assert len(set(rule.fires)) >= 2
    assert len(set(rule.silent)) >= 2


@each_rule
def test_each_example_with_the_mistake_is_found_at_a_place_in_it_and_its_fix_ends_it(rule):
    for name, example in examples(rule, "fires").items():
        files = files_of(example, default_name(rule))
        matches = found(rule, files)
        assert matches, name
        for diagnostic in matches:
            assert diagnostic.match.document[diagnostic.match.span].strip(), name
            assert diagnostic.finding.message, name
            if "#PBS " in example and "#SBATCH" not in example:
                fix = diagnostic.finding.fix
                assert re.search("PBS|qsub", fix) or not re.search(
                    r"\b(srun|scontrol|sbatch)\b|SLURM_", fix
                ), (name, fix)
        # A mistake of a rule with fixes may have none itself.
        if rule.safety and (any(d.match.edits for d in matches) or example in rule.fires):
            fix_ends(rule, files, matches, name)


def fix_ends(rule, files, matches, name):
    repaired = fixed(files, matches)
    assert repaired != files, name
    assert not [d.match.message for d in found(rule, repaired) if d.match.edits], name
    for path, text in repaired.items():
        if path.endswith(".py"):
            ast.parse(text)


@each_rule
def test_each_near_miss_is_silent(rule):
    said = {
        name: [d.match.message for d in found(rule, files_of(example, default_name(rule)))]
        for name, example in examples(rule, "silent").items()
    }
    assert {name: messages for name, messages in said.items() if messages} == {}
