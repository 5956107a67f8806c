"""``rankup rules``: what `rankup check` looks for, and why."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rankup.check.registry import all_rules, nearest_rule
from rankup.check.rule import Rule
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.table import print_table
from rankup.errors import RankupError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("rules")
def rules(
    code: Annotated[str, typer.Argument(metavar="[CODE]", help="a rule's code or name: RK101, no-srun")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the rules of `rankup check`, or explain one, with examples."""
    if not code:
        _list(as_json)
        return
    rule = rule_of(code)
    if rule is None:
        raise RankupError(
            "unknown-rule", f"unknown rule {code!r}{nearest_rule(code)}", hint="rankup rules lists all rules"
        )
    if as_json:
        console.print_json(rule_as_dict(rule))
    else:
        print(explained(rule))


def _list(as_json: bool) -> None:
    if as_json:
        console.print_json([rule_as_dict(rule) for rule in all_rules()])
        return
    rows = [
        (rule.code, rule.name, rule.severity.value, rule.safety.value if rule.safety else "–", rule.what)
        for rule in all_rules()
    ]
    print_table(("code", "name", "severity", "fix", "what it finds"), rows, fold=("what it finds",))


def rule_of(code: str) -> Rule[Any] | None:
    """The rule with this code or name."""
    return next((rule for rule in all_rules() if code.upper() == rule.code or code == rule.name), None)


def explained(rule: Rule[Any]) -> str:
    """The page of one rule."""
    fix = {"safe": "yes: --fix", "unsafe": "yes: --unsafe-fixes"}[rule.safety.value] if rule.safety else "no"
    blocks = [
        f"{rule.code} {rule.name} ({rule.severity.value}, {rule.confidence.value}; automatic fix: {fix})",
        rule.what,
        f"Why: {rule.why}",
        f"What to do: {rule.fix}",
        "Fires on:\n" + _indented(rule.fires[0]),
        "Does not fire on:\n" + _indented(rule.silent[0]),
        f"To allow it in one place: # rankup: allow {rule.code} (why)",
        f"Page: {rule.page}",
    ]
    return "\n\n".join(blocks)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.strip("\n").replace("\r", "␍").split("\n"))


def rule_as_dict(rule: Rule[Any]) -> dict[str, Any]:
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "confidence": rule.confidence.value,
        "what": rule.what,
        "why": rule.why,
        "fix": rule.fix,
        "automatic_fix": rule.safety.value if rule.safety else None,
        "fires": list(rule.fires),
        "silent": list(rule.silent),
        "page": rule.page,
    }
