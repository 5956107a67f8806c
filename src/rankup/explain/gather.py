"""From log files to facts: one pass over each file, with memory for what was found only."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rankup.explain.endings import Summary, ending_of
from rankup.explain.events import Ending, Event, Facts, Quote, Stuck
from rankup.explain.prefixes import Line, is_labelled, parse
from rankup.explain.reading import LogFile
from rankup.explain.signatures.match import signature_of, suspicious
from rankup.explain.signatures.signature import ERROR_LINE, PYTHON_EXCEPTION, Level, Signature
from rankup.explain.tracebacks import Traceback, Tracebacks
from rankup.explain.watchdog import stuck_of
from rankup.run.failure import ATTEMPT

_SAMPLE = 2000  # lines that decide whether a file has srun's label
_MOST_EVENTS = 2000
_LONGEST_QUOTE = 300
_NEAR_END = 40  # ordinary lines; an error further from the end was survived
_RANK_IN_NAME = re.compile(r"rank[-_.]?(\d+)\b|(?:^|/)(\d+)/std(?:out|err)\.log$")
_ERROR_LINE = re.compile(
    r"^\W*(?:\S+ ){0,3}?(?:fatal|critical|error|exception|failed|failure|\w+(?:Error|Exception))\b\]?[:\s-]",
    re.IGNORECASE,
)
_FRAME_OF_CPP = re.compile(r"^frame #\d+: |^Exception raised from |^<omitting python frames>")
_FAULT_FRAME = re.compile(r'^  File "([^"]+)", line \d+ in ')
_SYNTAX_FRAME = re.compile(r'^  File "[^"]+", line \d+$')
# Lines that follow a failure without a sign that the program goes on.
_EPILOGUE = ("srun:", "slurmstepd", "wandb:", "[W", "[E", "W1", "E1", "=>> PBS", "frame #")


def gather(files: Sequence[LogFile], *, failed_rank: int | None = None, failed: bool = False) -> Facts:
    """What the logs of a job say. ``failed_rank`` and ``failed`` are what its run directory tells."""
    facts = Facts(failed_rank=failed_rank, failed=failed)
    order = itertools.count()
    for file in files:
        reader = _Reader(file, order)
        reader.read()
        facts.events += reader.events
        facts.endings += reader.endings
        facts.watchdog += reader.stuck
        facts.suspects += reader.suspects
        facts.ranks |= reader.ranks
        facts.ranks |= {ending.exit.rank for ending in reader.endings if ending.launcher == "torchrun"}
        if file.skipped:
            facts.notes.append(f"{file.name}: {file.skipped >> 20} MB in its middle were not looked at")
        if file.trouble:
            facts.notes.append(f"{file.name}: {file.trouble}")
    return facts


def rank_in_name(path: Path) -> int | None:
    found = _RANK_IN_NAME.search(path.as_posix()[-60:])
    return int(found[1] or found[2]) if found else None


@dataclass
class _Stream:
    """The lines of one process, as far as labels tell them apart."""

    tracebacks: Tracebacks = field(default_factory=Tracebacks)
    summary: Summary = field(default_factory=Summary)
    ordinary: int = 0
    faults: Event | None = None  # whose frames are being printed
    before: Quote | None = None  # the last line, if it is that of a syntax error


class _Reader:
    def __init__(self, file: LogFile, order: Iterable[int]) -> None:
        self._file, self._order = file, iter(order)
        self._rank = rank_in_name(file.path)
        self._clear()

    def _clear(self) -> None:
        self.events: list[Event] = []
        self.endings: list[Ending] = []
        self.stuck: list[Stuck] = []
        self.suspects: list[Event] = []
        self.ranks: set[int] = set()
        self._streams: dict[object, _Stream] = {}
        self._known: dict[tuple[str, str, object], Event] = {}
        self._since: list[tuple[Event, _Stream | None, int]] = []
        self._late: deque[tuple[Event, int]] = deque(maxlen=_NEAR_END)
        self._ordinary = 0
        self._time: float | None = None
        self._agents = False  # torchrun's own lines are here: srun's label is that of a node

    def read(self) -> None:
        lines = self._file.lines()
        sample = list(itertools.islice(lines, _SAMPLE))
        labelled = is_labelled(text for _, text in sample)
        for number, raw in itertools.chain(sample, lines):
            if raw.startswith(ATTEMPT):
                self._clear()
                continue
            labelled = labelled or (raw[:4].strip()[:1].isdecimal() and is_labelled([raw]))
            self._line(number, parse(raw, labelled=labelled))
        for stream in self._streams.values():
            self._tracebacks(stream, stream.tracebacks.end())
            self.endings += stream.summary.end()
        for event, of, before in self._since:
            event.after = (self._ordinary if of is None else of.ordinary) - before
        self.suspects = [event for event, before in self._late if self._ordinary - before < _NEAR_END]

    def _line(self, number: int, line: Line) -> None:
        text = line.text
        quote = Quote(self._file.name, number, line.raw[:_LONGEST_QUOTE])
        order = next(self._order)
        self._time = line.time if line.time is not None else self._time
        self._agents = (
            self._agents or "torch/distributed/elastic/" in text or "torch/distributed/run.py" in text
        )
        rank = line.rank if line.rank is not None else self._rank
        if rank is not None:
            self.ranks.add(rank)
        key = (line.rank, line.local, line.task)
        stream = self._streams.setdefault(key, _Stream())
        if stream.summary.feed(text, quote):
            self._tracebacks(stream, stream.tracebacks.take())
            self.endings += stream.summary.take()
            return
        of = stream.summary.rank if stream.summary.active else self._rank_of(line)
        inside = stream.tracebacks.feed(text, quote, of)
        self._tracebacks(stream, stream.tracebacks.take())
        if inside:
            return
        if not suspicious(text):
            self._quiet(text, quote, stream)
            return
        endings = ending_of(text, quote, order)
        self.endings += endings
        if found := stuck_of(text, line.rank, quote):
            self.stuck.append(found)
        signature = None if _FRAME_OF_CPP.match(text) else signature_of(text)
        if signature is None:
            self._quiet(text, quote, stream)
            if _ERROR_LINE.match(text) and not line.warning:
                event = Event(
                    ERROR_LINE,
                    [quote],
                    text.strip()[:_LONGEST_QUOTE],
                    order,
                    self._file.name,
                    of,
                    time=self._time,
                )
                self._late.append((event, self._ordinary))
            return
        quotes = (
            [stream.before, quote] if stream.before and signature.name == "python-syntax-error" else [quote]
        )
        event = Event(
            signature, quotes, text.strip()[:_LONGEST_QUOTE], order, self._file.name, of, time=self._time
        )
        event.warning = line.warning
        event.labelled = line.rank is not None or self._rank is not None
        if len(endings) == 1 and endings[0].launcher == "srun":
            event.host, event.rank = endings[0].host, None if self._agents else endings[0].exit.rank
        stream.faults = self._add(event, stream) if text.startswith("Fatal Python error") else None
        if stream.faults is None:
            self._add(event, stream)

    def _rank_of(self, line: Line) -> int | None:
        if line.rank is not None:
            return line.rank
        if (
            line.task is not None
            and line.local is None
            and not self._agents
            and not line.text.startswith(("srun:", "slurmstepd"))
        ):
            return line.task
        return self._rank

    def _quiet(self, text: str, quote: Quote, stream: _Stream) -> None:
        """A line that says nothing of a failure."""
        if stream.faults is not None and _FAULT_FRAME.match(text):
            if len(stream.faults.quotes) < 4:
                stream.faults.quotes.append(quote)
            return
        stream.before = (
            quote if _SYNTAX_FRAME.match(text) else stream.before if text.startswith("   ") else None
        )
        if text.strip() and not text.startswith(_EPILOGUE):
            self._ordinary += 1
            stream.ordinary += 1

    def _tracebacks(self, stream: _Stream, tracebacks: Iterable[Traceback]) -> None:
        for trace in tracebacks:
            self._add(self._event_of(trace), stream)

    def _event_of(self, trace: Traceback) -> Event:
        chain = trace.chain()
        signature, named = _signature_of_chain(chain)
        mine = named if named.own else next((one for one in reversed(chain) if one.own), None)
        frame = mine.own if mine else named.frames[-1] if named.frames else None
        quotes = list(frame.quotes) if frame else []
        quotes += [one.quote for one in ([named] if named is chain[-1] else [named, chain[-1]]) if one.quote]
        if named is chain[-1] and len(chain) > 1 and not trace.nested and chain[0].quote:
            quotes.insert(0, chain[0].quote)
        if named.more and named.said.endswith(":"):
            quotes.append(named.more)
        unique = list(dict.fromkeys(quotes))
        event = Event(
            signature, unique, named.said[:_LONGEST_QUOTE], next(self._order), self._file.name, trace.rank
        )
        event.time, event.traceback = self._time, True
        event.labelled = trace.rank is not None
        if trace.rank is None and (found := re.search(r"\bprocess (\d+) terminated with", named.said)):
            event.rank = int(found[1])
        return event

    def _add(self, event: Event, stream: _Stream) -> Event | None:
        key = (event.signature.name, event.kind, event.rank)
        known = self._known.get(key)
        if known is not None:
            known.count += 1
            if not known.warning or event.warning:
                return known
            self.events.remove(known)  # what was a warning has become an error
        if len(self.events) >= _MOST_EVENTS:
            return None
        self._known[key] = event
        self.events.append(event)
        labelled = event.labelled
        self._since.append(
            (event, stream if labelled else None, stream.ordinary if labelled else self._ordinary)
        )
        return event


def _signature_of_chain(chain: Sequence[Traceback]) -> tuple[Signature, Traceback]:
    """The signature that explains most, and the exception that has it; among equals the earlier one, which caused
    the later. Without one: the last exception, or the innermost of those that were handed on."""
    found = [(one, signature) for one in chain if (signature := signature_of(one.text))]
    if found:
        best = max(signature.level for _, signature in found)
        named, signature = next(pair for pair in found if pair[1].level is best)
        if best is Level.ROOT or len(found) == len(chain):
            return signature, named
    named = next(one for one in reversed(chain) if not signature_of(one.text))
    return PYTHON_EXCEPTION, named
