"""What is wrong with a published table, and with the text around it: first as ``comparability`` says, then what only
a printed table can have. A page that does not tell something is not guilty of it: one note lists that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rankup.findings.finding import Confidence, Finding, Severity, in_order
from rankup.scale.comparability import judge as judge_study
from rankup.scale.conditions import LINEAR
from rankup.scale.families import families, label
from rankup.scale.published.as_study import Published, as_study, fewest_devices
from rankup.scale.published.cells import Number
from rankup.scale.published.table import Entry, Page, Table
from rankup.scale.results import Configuration
from rankup.scale.rows import Ratio, ratio
from rankup.scale.stats import ENOUGH_FOR_RATIO

_N = r"(\d+(?:\.\d+)?)"
_ABOUT = r"(?:\s*(?:of|is|was|reaches|about|nearly|:|=|~|≈))*\s*"
# An efficiency in percent before or behind its name, a speed-up before or behind its name.
CLAIM = re.compile(
    rf"efficiency{_ABOUT}{_N}\s?%|{_N}\s?%\s(?:\w+\s)?efficiency|"
    rf"speed-?up(?: factor)?{_ABOUT}{_N}(?!\s?%|[\d.]*\d)|{_N}\s?(?:[x×]|-fold|times)\s(?:\w+\s)?speed-?up",
    re.I,
)
_COUNTED = re.compile(r"\b(\d+)\s*(?:[x×]\s*)?(?:[\w-]+\s)?(nodes|gpus|devices|processes|ranks)\b", re.I)


@dataclass(frozen=True)
class Pair:
    """One row beside the one that it is compared with. ``slack``: what rounding of their values may add to the ratio,
    as a share of it."""

    entry: Entry
    baseline: Entry
    ratio: Ratio
    slack: float


@dataclass(frozen=True)
class Judgement:
    """``names``: line of a row → what it is called; ``claims``: how many ratios the text tells."""

    names: dict[int, str]
    pairs: Sequence[Pair]
    findings: list[Finding]
    claims: int


def judge(page: Page) -> Judgement:
    """All findings, most severe first."""
    claims = [claim for line, text in page.paragraphs for claim in _claims(page, line, text)]
    found = [finding for finding in claims if finding is not None]
    table = page.table
    if table is None:
        return Judgement({}, [], in_order(found), len(claims))
    published = as_study(table)
    study = published.study
    own = families(study)
    together = own or fewest_devices(study)
    pairs = [
        _pair(published, family.baseline, one, ratio(family, one))
        for family in together
        for one in family.others
    ]
    # Few runs are told by `_not_told`, superlinear results without repeats by `_superlinear`; the seconds of a rate
    # or of a step are not those of a run.
    found += [
        finding
        for finding in (*judge_study(study, together), *judge_study(study, own))
        if finding.code not in ("few-repeats", "superlinear", "short-runs")
    ]
    found += [
        *_left_out(table),
        *_unclear(table),
        *_superlinear(table, pairs),
        *_wrong_ratios(table, pairs),
        *_not_told(table),
    ]
    names = {published.entry_of(one).line: label(one, study) for one in study.configurations}
    return Judgement(names, pairs, in_order(found), len(claims))


def _pair(published: Published, baseline: Configuration, one: Configuration, found: Ratio) -> Pair:
    before, after = published.entry_of(baseline), published.entry_of(one)
    return Pair(after, before, found, before.value.slack + after.value.slack)


def _left_out(table: Table) -> Iterable[Finding]:
    """A row that nobody read may be the one that is wrong."""
    for row in table.left_out:
        yield Finding(
            "row-left-out",
            Severity.WARNING if row.empty else Severity.ERROR,
            f"left out: {row.why}",
            place=f"{table.name}:{row.line}",
            why="an empty row compares nothing" if row.empty else "what cannot be read cannot be judged",
            fix="" if row.empty else "one number in each cell; remarks have a column of their own",
        )


def _unclear(table: Table) -> Iterable[Finding]:
    steps = table.metric == "step-time" and not all("global_batch" in one.facts for one in table.entries)
    if table.unclear_batch:
        yield Finding(
            "unclear-batch",
            Severity.WARNING,
            "the column of batch sizes does not say whether they are of a device or of all",
            place=table.place(),
            why="a batch of each device makes the global batch, and so the work of a step, grow with the devices",
            fix="call the column “global batch” or “batch per GPU”, beside “accumulation” if gradients are accumulated",
        )
    if steps:
        yield Finding(
            "samples-unknown",
            Severity.ERROR,
            "times of steps are compared, and nobody tells how many samples a step has",
            place=table.place(),
            why="a step of more samples is more work",
            fix="a column “global batch” or “batch per GPU”; or samples per second",
        )
    told = {one.facts.get("accumulate") for one in table.entries}
    if len(told) > 1:
        yield Finding(
            "unequal-accumulation",
            Severity.WARNING,
            "gradient accumulation differs: "
            + ", ".join(f"{one.facts.get('accumulate')} with {one.devices} devices" for one in table.entries),
            place=table.place(),
            why="who accumulates exchanges gradients more rarely, and uses another batch on the device",
            fix="the same accumulation in all rows, or a row of each",
            confidence=Confidence.LIKELY,
        )


def _superlinear(table: Table, pairs: Sequence[Pair]) -> Iterable[Finding]:
    for pair in pairs:
        if pair.ratio.efficiency * (1 - pair.slack) > LINEAR and pair.entry.devices > pair.baseline.devices:
            yield Finding(
                "superlinear",
                Severity.ERROR,
                f"{pair.ratio.name}: a speed-up of {pair.ratio.speedup:.2f} and an efficiency of "
                f"{pair.ratio.efficiency:.0%} against {pair.ratio.baseline}",
                place=table.place(pair.entry),
                why="added devices bring at most 100 %. Likely causes: another precision or batch in the baseline, "
                "data loading that limits one process, samples counted twice, a first run that was not warm",
                fix="find what makes the baseline slow, and measure it without that",
            )


def _wrong_ratios(table: Table, pairs: Sequence[Pair]) -> Iterable[Finding]:
    """Printed ratios that follow from no two rows of the table."""
    for entry in table.entries:
        mine = [pair for pair in pairs if pair.entry is entry]
        wrong = []
        if (stated := entry.speedup) and not any(_agrees(stated, p.ratio.speedup, p.slack) for p in mine):
            wrong.append(f"a speed-up of {stated.value:g}")
        if (stated := entry.efficiency) and not any(
            _agrees(stated, p.ratio.efficiency, p.slack) for p in mine
        ):
            wrong.append(f"an efficiency of {stated.value:.0%}")
        if wrong and mine:
            first = mine[0].ratio
            yield Finding(
                "wrong-ratio",
                Severity.ERROR,
                f"{first.name}: printed {' and '.join(wrong)}, but its numbers give a speed-up of {first.speedup:.2f} "
                f"and an efficiency of {first.efficiency:.0%} against {first.baseline}",
                place=table.place(entry),
                why="the ratio does not follow from the numbers beside it",
                fix="compute it again, and say which row is the baseline",
            )


def _agrees(stated: Number, found: float, slack: float) -> bool:
    """Beyond what rounding explains, cut digits included."""
    return abs(stated.value - found) <= 2 * stated.half + found * (slack + 0.005)


def _not_told(table: Table) -> Iterable[Finding]:
    """What one would have to know to believe it."""
    missing = [
        words
        for words, told in (
            ("precision", [entry.facts.get("precision") for entry in table.entries]),
            ("global batch", [entry.facts.get("global_batch") for entry in table.entries]),
            ("accuracy", [entry.accuracy for entry in table.entries]),
            (
                f"{ENOUGH_FOR_RATIO} runs or more of each",
                [entry.repeats >= ENOUGH_FOR_RATIO or None for entry in table.entries],
            ),
        )
        if None in told
    ]
    if missing:
        yield Finding(
            "not-told",
            Severity.NOTE,
            "not told: " + ", ".join(missing),
            place=table.place(),
            why="these are what published speed-ups were wrong about most often",
        )


def _claims(page: Page, line: int, text: str) -> Iterable[Finding | None]:
    """Each ratio of a paragraph; a finding where it is more than devices can bring. Against a CPU all is possible."""
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z\d*])", text):
        if re.search(r"\bcpus?\b", sentence, re.I):
            continue
        counts: dict[str, int] = {}
        for number, word in _COUNTED.findall(sentence):
            kind = "nodes" if word.lower() == "nodes" else "devices"
            counts[kind] = max(counts.get(kind, 1), int(number))
        # Of nodes alone nobody knows how many devices they have; with both, there are at most so many.
        devices = counts["devices"] * counts.get("nodes", 1) if "devices" in counts else 0
        for found in CLAIM.finditer(sentence):
            percent, speedup = found[1] or found[2], found[3] or found[4]
            if not ((percent and float(percent) > 100) or (speedup and devices and float(speedup) > devices)):
                yield None
            else:
                yield Finding(
                    "superlinear",
                    Severity.ERROR,
                    f"“{found[0]}”" + (f" with {devices} devices" if devices else ""),
                    place=f"{page.name}:{line}",
                    why="added devices bring at most 100 %: the baseline did other work, or did it in another way",
                    fix="the same precision, batch and data in the baseline",
                )
