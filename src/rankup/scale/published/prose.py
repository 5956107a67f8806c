"""Speed-ups that a sentence tells: ``With 4 GPUs … from 5,100 images/s (single GPU) to 37,000, a 7x speedup``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankup.scale.published import quantities as q
from rankup.scale.published.documents import Document
from rankup.scale.published.page import Scope, page_precisions

_SENTENCE = re.compile(r"(?<=[.!?。])\s+(?=[A-Z\d*])")
_N = r"(\d+(?:\.\d+)?)"
_SPEEDUP = (
    rf"speed-?up(?: factor)?(?: of| is| was|:| =)?\s*(?:about|approximately|around|~|≈|nearly|"
    rf"almost)?\s*{_N}(?!\s*%)",
    rf"{_N}\s*(?:x|×|-fold| times)\s*(?:speed-?up|faster|acceleration|the speed|"
    rf"higher throughput|increase in throughput)",
)
_EFFICIENCY = (
    rf"efficiency(?: of| is| was|:| =)?\s*(?:about|approximately|around|~|≈)?\s*{_N}\s*%|"
    rf"{_N}\s*%\s*(?:parallel |scaling )?efficiency"
)
_UNIT = r"(?:images?|img|samples?|tokens?|sequences?)\s*(?:/|per )\s*(?:s\b|sec\w*)"
_FROM_TO = re.compile(
    rf"from\s*(~?[\d.,]+)\s*(?:{_UNIT}|\w+)?\s*(?:\([^)]*\))?\s*(?:to|→|->)\s*(?:only |just )?(~?[\d.,]+)",
    re.I,
)
_ONE = r"single|one (?:gpu|device|process)|\b1 (?:gpu|device|process)|baseline"
_OTHER = (
    r"\bcpus?\b|can\b|could\b|expect|ideal|theoretical|up to|should|would|perfect|linear speed|"
    r"\bif\b|\bmay\b|might"
)


@dataclass(frozen=True)
class Claim:
    """A sentence that gives a speed-up of ``devices`` over one. ``found``: from its own numbers, if it has them."""

    place: str
    text: str
    devices: int
    speedup: float
    found: float | None
    precision: dict[Scope, str]


def claims_of(document: Document) -> list[Claim]:
    told = page_precisions(document)
    claims = []
    for block in document.blocks:
        if block.kind != "text":
            continue
        for sentence in _SENTENCE.split(block.text):
            claim = _claim(sentence)
            if claim:
                devices, speedup, found = claim
                scopes: dict[Scope, str] = {
                    scope: name for scope, name in told if scope in ("one", "many", devices)
                }
                claims.append(
                    Claim(f"{document.name}:{block.line}", sentence, devices, speedup, found, scopes)
                )
    return claims


def _claim(sentence: str) -> tuple[int, float, float | None] | None:
    if re.search(_OTHER, sentence, re.I):
        return None
    counts = {
        counted[1]
        for match in re.finditer(
            r"\b[\w-]+[\s-]+(?:\w+\s+)?(?:gpus?|devices|processes|ranks)\b", sentence, re.I
        )
        if (counted := q.devices(match[0])) and counted[0] == "gpu"
    }
    larger = counts - {1}
    if len(larger) != 1:
        return None
    devices = larger.pop()
    if (
        1 not in counts
        and not re.search(_ONE, sentence, re.I)
        and re.search(r"than|compared|over ", sentence, re.I)
    ):
        return None
    found = _from_to(sentence)
    for pattern in _SPEEDUP:
        if match := re.search(pattern, sentence, re.I):
            return devices, float(match[1]), found
    if match := re.search(_EFFICIENCY, sentence, re.I):
        return devices, float(match[1] or match[2]) / 100 * devices, found
    return None


def _from_to(sentence: str) -> float | None:
    match = _FROM_TO.search(sentence)
    if not match:
        return None
    before, after = q.number(match[1].rstrip(".,")), q.number(match[2].rstrip(".,"))
    if not (before and after):
        return None
    return max(before.value, after.value) / min(before.value, after.value)
