"""What the text around a table tells: precision by number of devices, weak scaling, batch, repeats, test samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rankup.scale.published import quantities as q
from rankup.scale.published.documents import Block, Document

# Who is meant: 1 (the baseline), a number of devices, "many", or None for all.
Scope = int | str | None

_ONE = (
    r"baseline|single[- ](?:gpu|device|process|card|worker)|one[- ](?:gpu|device|process)\b|"
    r"\b1[- ](?:gpu|device|process)\b"
)
_MANY = (
    r"\bothers?\b|multi[- ]?(?:gpu|node|process)|\bddp\b|distributed|multiple (?:gpus|nodes|"
    r"devices)|\bthe rest\b|remaining|parallel|all other"
)
_ADVICE = (
    r"\b(?:can|could|may|might|should|would|consider|try|if|recommend\w*|typically|usually|"
    r"often|optional\w*|supports?|how to|you)\b"
)
_CLAUSE = re.compile(r"[;,:]\s|\bwhile\b|\bwhereas\b|\bbut\b|\band\b|\(|\)| - | – | — ")
_SENTENCE = re.compile(r"(?<=[.!?。])\s+")
_NEGATED = re.compile(r"\b(?:without|no|not|non|disabled?|instead of|rather than|than|from)\b[^,.;]*$", re.I)
_TEST_SAMPLES = (("cifar", 10_000), ("fashion", 10_000), ("mnist", 10_000), ("imagenet", 50_000))


@dataclass(frozen=True)
class Surroundings:
    """``near``: the section's text; ``heading``: the headings above it, the page's first. ``precisions``: (scope,
    precision) that both tell; ``elsewhere``: what other sections tell. ``caption``: the last text or heading
    above that gives a number of devices."""

    heading: str
    near: Sequence[str]
    precisions: Sequence[tuple[Scope, str]]
    elsewhere: Sequence[tuple[Scope, str]] = ()
    caption: str = ""

    @property
    def text(self) -> str:
        return " ".join([self.heading, *self.near])

    def precision(self, devices: int) -> str | None:
        """What the page tells for ``devices``: of that number before one or many, near before elsewhere."""
        groups: tuple[tuple[Scope, ...], ...] = ((devices,), ("one",) if devices == 1 else ("many",))
        for told, scopes in (
            *((self.precisions, group) for group in (*groups, (None,))),
            *((self.elsewhere, group) for group in groups),
        ):
            names = {name for scope, name in told if scope in scopes}
            if names:
                return names.pop() if len(names) == 1 else None
        return None

    @property
    def weak(self) -> bool:
        low = self.text.lower()
        return "weak" in low and "scal" in low and "strong" not in low

    @property
    def per_node(self) -> int | None:
        """GPUs per node, if the text tells: ``4 GPUs per node``, ``each node has 8 GPUs``."""
        match = re.search(
            r"(\d+)\s*(?:x\s*)?(?:\w+\s+){0,2}gpus?\s*(?:per|/|on each|in each)\s*node", self.text, re.I
        )
        match = match or re.search(r"each node\s*(?:has|with|contains)\s*(\d+)\b[^.]*gpu", self.text, re.I)
        return int(match[1]) if match else None

    def batch(self) -> tuple[str, int] | None:
        """("device" or "global", samples) of a batch size that the text gives for all rows."""
        local = r"(?:per|/|on each|each)[- ]?(?:gpu|device|process|rank|card|worker)"
        patterns = (
            ("device", rf"batch[- _]size\s*(?:of|=|:|is|was)?\s*(\d+)\s*(?:images|samples)?\s*{local}"),
            ("device", rf"(?:{local}|local)\s*(?:mini-?)?batch[- _]?size\s*(?:of|=|:|is|was)?\s*(\d+)"),
            ("device", rf"(\d+)\s*(?:images|samples|sequences)\s*{local}"),
            ("device", r"batch_size_per_device\s*=?\s*(\d+)"),
            (
                "global",
                r"(?:global|total|effective|overall)\s*batch[- _]?(?:size)?\s*(?:of|=|:|is|was|"
                r"fixed at)?\s*(\d+)",
            ),
            ("global", r"batch[- _]size\s*(?:of|=|:|is)?\s*(\d+)\s*(?:in total|globally|over all|overall)"),
        )
        told = {
            (kind, int(m[1])) for kind, pattern in patterns for m in re.finditer(pattern, self.text, re.I)
        }
        return told.pop() if len(told) == 1 else None

    @property
    def repeats(self) -> int | None:
        """How many runs a number is made of: ``median of 5 runs``, ``a single run``; None if nobody tells."""
        low = self.text.lower()
        number = r"(\d+|two|three|four|five|six|eight|ten)"
        match = re.search(
            rf"(?:mean|median|averaged?|best|minimum)\s+(?:of|over|"
            rf"across)\s+(?:the\s+)?{number}\s+(?:\w+\s+)?"
            rf"(?:runs|repeats|repetitions|trials|times|experiments|measurements|seeds)|"
            rf"repeated\s+{number}\s+times"
            rf"|{number}\s+(?:runs|repeats|repetitions|trials)\b|{number} 次",
            low,
        )
        if match:
            word = next(group for group in match.groups() if group)
            return q.WORDS.get(word) or int(word)
        single = (
            r"single run|one run each|each (?:configuration )?(?:was |were )?run once|"
            r"ran (?:each )?once|measured once|one measurement"
        )
        return 1 if re.search(single, low) else None

    @property
    def test_samples(self) -> int | None:
        low = self.text.lower()
        match = re.search(r"([\d,]{3,})\s*(?:test|validation)\s*(?:images|samples|examples)", low)
        if match:
            return int(match[1].replace(",", ""))
        return next((samples for name, samples in _TEST_SAMPLES if name in low), None)


def surroundings(document: Document, table: Block) -> Surroundings:
    """What stands around ``table``: its headings and the text between the heading above and the next heading."""
    at = next(n for n, block in enumerate(document.blocks) if block is table)
    before: list[Block] = []
    for block in reversed(document.blocks[:at]):
        before.insert(0, block)
        if block.kind == "heading":
            break
    after: list[Block] = []
    for block in document.blocks[at + 1 :]:
        if block.kind in ("heading", "table"):
            break
        after.append(block)
    headings = _headings(document.blocks[:at])
    near = [block.text for block in (*before, *after) if block.kind == "text"]
    # What other sections tell counts only if they say of whom.
    elsewhere = [(scope, name) for scope, name in page_precisions(document) if scope is not None]
    above = [block.text for block in before if block.kind == "text"][-1:]
    caption = next((text for text in (*above, *headings[-1:]) if q.devices(text)), "")
    told = _told([*near, *_innermost(headings)])
    return Surroundings(" ".join(headings), near, told, elsewhere, caption)


def _headings(before: Sequence[Block]) -> list[str]:
    """The headings that a place is under, the page's first."""
    found: list[Block] = []
    for block in reversed(before):
        if block.kind == "heading" and (not found or block.level < found[0].level):
            found.insert(0, block)
    return [block.text for block in found]


def _innermost(headings: Sequence[str]) -> list[str]:
    """The last heading that names one precision: it holds for what is under it."""
    named = [heading for heading in headings if q.precision(heading)]
    return named[-1:]


def page_precisions(document: Document) -> list[tuple[Scope, str]]:
    """(scope, precision) of every section; a heading such as ``Single GPU`` is the scope of what is under it."""
    told: list[tuple[Scope, str]] = []
    heading: Scope = None
    for block in document.blocks:
        if block.kind == "heading":
            heading = _scope(block.text)
            told += _told([block.text])
        elif block.kind == "text":
            told += [(heading if scope is None else scope, name) for scope, name in _told([block.text])]
        elif block.kind == "code":
            told += _from_code(block.text, heading)
    return told


def _told(texts: Iterable[str]) -> list[tuple[Scope, str]]:
    told: list[tuple[Scope, str]] = []
    for text in texts:
        for sentence in _SENTENCE.split(text):
            if q.precisions(sentence) and not re.search(_ADVICE, sentence, re.I):
                told += _clauses(sentence)
    return told


def _clauses(sentence: str) -> list[tuple[Scope, str]]:
    told: list[tuple[Scope, str]] = []
    scope: Scope = None
    before = ""  # the clause before, if it may be the first of two subjects: ``2 GPUs and 4 GPUs use bf16``
    for clause in filter(str.strip, _CLAUSE.split(sentence)):
        own = _scope(clause)
        also = scope if own is not None and len(before.split()) <= 4 else None
        scope = own if own is not None else scope
        before = clause
        name = q.precision(clause)
        if name is None:
            continue
        before = "more words than a subject has, as this"
        word = re.search(
            r"amp\b|mixed|fp\d+|bf\d+|tf32|float\d+|bfloat|half|autocast|single|full|double|32-bit",
            clause,
            re.I,
        )
        if word and _NEGATED.search(clause[: word.start()]):
            if name not in ("mixed", "fp16", "bf16") or re.search(r"than|from|instead", clause, re.I):
                continue
            name = "fp32"
        told += [(one, name) for one in dict.fromkeys((scope, also)) if one is scope or one is not None]
    return told


def _scope(text: str) -> Scope:
    if re.search(_ONE, text, re.I):
        return "one"
    found = q.devices(text)
    if found and found[0] == "gpu":
        return "one" if found[1] == 1 else found[1]
    return "many" if re.search(_MANY, text, re.I) else None


def _from_code(code: str, heading: Scope) -> list[tuple[Scope, str]]:
    """A training loop or a command that shows its precision, of the devices that the code or the heading names."""
    trains = "backward(" in code
    option = re.search(r"--(?:precision|dtype)[= ](\w+)|--(amp|fp16|bf16|fp32)\b", code)
    mixed = bool(re.search(r"autocast\(|GradScaler\(", code))
    launched = re.search(
        r"nproc[-_]per[-_]node[= ](\d+)|--(?:gpus|num_processes|ngpus)[= ](\d+)|mpirun -np? (\d+)", code
    )
    scope = heading
    if launched:
        number = int(next(group for group in launched.groups() if group))
        scope = "one" if number == 1 else "many"
    elif re.search(r"DistributedDataParallel|init_process_group|DDP\(", code):
        scope = "many"
    elif trains and heading is None:
        scope = "one"
    if scope is None:
        return []
    if option:
        name = q.precision(option[1] or option[2])
        return [(scope, name)] if name else []
    if mixed:
        named = q.precision(" ".join(re.findall(r"bfloat16|float16", code)))
        return [(scope, named or "mixed")]
    if trains and not re.search(
        r"\.half\(\)|bfloat16|float16|apex|deepspeed|Fabric\(|Trainer\(|Accelerator\(", code
    ):
        return [(scope, "fp32")]
    return []
