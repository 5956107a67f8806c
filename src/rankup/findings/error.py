"""``FindingsError``: several mistakes at once, as the one error that a command ends with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rankup.errors import RankupError
from rankup.findings.finding import Finding, Severity, in_order


class FindingsError(RankupError):
    """Findings that stop a command. As an error it is the most severe of them.

    ``conclusion`` says in a few words what was not done, and how to do it all the same.
    """

    def __init__(self, findings: Iterable[Finding], *, exit_code: int = 2, conclusion: str = "") -> None:
        self.findings = in_order(findings)
        self.conclusion = conclusion
        worst = self.findings[0]
        super().__init__(worst.code, worst.message, context=worst.place, hint=worst.fix, exit_code=exit_code)

    def lines(self) -> list[str]:
        from rankup.findings.text import finding_lines, text_lines

        if len(self.findings) == 1:
            return finding_lines(self.findings[0])
        return [*text_lines(self.findings), self.summary()]

    def summary(self) -> str:
        """How many of each severity, and the conclusion."""
        from rankup.findings.text import count

        return count(self.findings) + (f": {self.conclusion}" if self.conclusion else "")

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "findings": [finding.as_dict() for finding in self.findings]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RankupError:
        """The inverse of ``as_dict``, of any ``RankupError``: so an error crosses from one node to another."""
        if "findings" not in values:
            return RankupError.from_dict(values)
        return cls(map(Finding.from_dict, values["findings"]), exit_code=values["exit_code"])


def raise_errors(findings: Iterable[Finding], *, exit_code: int = 2, conclusion: str = "") -> None:
    """Raise all ``findings`` as one ``FindingsError`` if at least one of them is an error."""
    findings = list(findings)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise FindingsError(findings, exit_code=exit_code, conclusion=conclusion)


def findings_of(error: RankupError) -> list[Finding]:
    """An error as findings, to stand among others: those that it holds, or itself."""
    if isinstance(error, FindingsError):
        return error.findings
    return [Finding(error.code, Severity.ERROR, error.message, place=error.context, fix=error.hint)]
