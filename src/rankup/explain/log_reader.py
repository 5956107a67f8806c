"""One pass over a log: its events, the ends of ranks, what watchdogs say.

Most of a long log is ordinary. Lines in which no word looks like a failure are only counted, block by block.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rankup.explain.endings import Summary, ending_of
from rankup.explain.events import Ending, Event, Quote, Stuck
from rankup.explain.prefixes import Line, is_labelled, parse, stamp
from rankup.explain.reading import LogFile
from rankup.explain.signatures.match import Matcher, signature_of, signature_of_place, suspicious
from rankup.explain.signatures.signature import (
    CUT_OFF,
    ERROR_LINE,
    EXCEPTION_LINE,
    PYTHON_EXCEPTION,
    UNEXPECTED,
    Level,
    Signature,
)
from rankup.explain.tracebacks import ENDED_NOTHING, Traceback, Tracebacks
from rankup.explain.watchdog import stuck_of
from rankup.run.failure import ATTEMPT

_ATTEMPTS = (ATTEMPT, "==== rankup: attempt ")  # in logs of ranks, and in that of a job
_SAMPLE = 2000  # lines that decide whether a file has srun's label
_BLOCK = 64
_CLOSE, _ALL = 200, 1 << 62  # so many lines are looked at one by one after one that says something
_OFTEN = 8  # times that lines alike said nothing: more of them are only counted
_MOST_KINDS = 4096
_MOST_EVENTS = 2000
_LAST_WORDS = 3  # lines that are shown where nothing is known
_LONGEST_QUOTE, _LONGEST_LABEL = 300, 24
_NEAR_END = 40  # ordinary lines; an error further from the end was survived
_RANK_IN_NAME = re.compile(r"rank[-_.]?(\d+)\b|(?:^|/)(\d+)/std(?:out|err)\.log$")
_ERROR_LINE = re.compile(
    r"^\[?E(?:\d{3,4} \d\d:| \w+\.cpp)"  # the level of torch's own logger
    r"|^(?:F\d{4} \d\d:|[\d:. -]+: F \S+:\d+\])"  # or that at which glog, and TensorFlow's, abort
    r"|^\W*(?:\S+ ){0,3}?(?:fatal|critical|error|exception|failed|failure|\w+(?:Error|Exception))\b\]?[:\s-]",
    re.IGNORECASE,
)
_LEVEL = re.compile(r"^(?:\S+ +){0,6}?[\[<|(]?(?:ERROR|CRITICAL|FATAL)\b[\]>|):]*[\s-]")  # of a logger's line
#: A metric is not a failure: ``error rate 0.12``, ``validation error: 3.1e-2``, ``failed samples: 0``.
_METRIC = re.compile(
    r"\b(?:error|failure|failed)s?\b(?:[ _](?!code|status|errno|signal|with|line|at|in|on|after|to\b)[a-z]+){0,2}"
    r" ?[:=]? ?(?:0|[-+]?\d+\.\d+(?:e[-+]?\d+)?|\d+e-\d+|\d+ ?%)%?(?=[,;)\s]|$)",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"\d+")
_FRAME_OF_CPP = re.compile(r"^frame #\d+: |^Exception raised from |^<omitting python frames>")
_FAULT_FRAME = re.compile(r'^  File "([^"]+)", line \d+ in ')
_SYNTAX_FRAME = re.compile(r'^  File "[^"]+", line \d+$')
SOURCE = "    "  # what is indented so far is source code or the rest of a message: it fails nothing
#: A line that raises an exception of its own; of one over several lines older Pythons print the last.
_RAISES = re.compile(r"raise\b|assert\b|[rf]*[\"']")
_JSON = re.compile(r'^ +"message": "')  # torchrun's error handler prints the exception of the agent as JSON
# Lines that follow a failure without a sign that the program goes on.
_EPILOGUE = (
    "srun:", "slurmstepd", "wandb:", "[W", "[E", "W1", "E1", "=>> PBS", "frame #", "----", "====", "lost sys.stderr",
)  # fmt: skip


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


class LogReader:
    """``read`` fills the public lists. ``order`` counts the lines of all files; ``rank`` is that of the file's name."""

    def __init__(self, file: LogFile, order: Iterator[int]) -> None:
        self._file, self._order = file, order
        self.rank = rank_in_name(file.path)
        self._matcher = Matcher()
        self._labelled = False
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
        self._last: deque[tuple[int, str]] = deque(maxlen=_LAST_WORDS)
        self._close = _CLOSE
        self._harmless: dict[str, int] = {}
        self._heads: set[str] = set()
        self._ordinary = 0
        self._time: float | None = None
        self._agents = False  # torchrun's own lines are here: srun's label is that of a node

    def read(self) -> None:
        lines = self._file.lines()
        sample = list(itertools.islice(lines, _SAMPLE))
        self._labelled = is_labelled(text for _, text in sample)
        lines = itertools.chain(sample, lines)
        while block := list(itertools.islice(lines, _BLOCK)):
            skim = self._close <= 0 and not suspicious("\n".join(raw for _, raw in block))
            for number, raw in block:
                if skim or (self._close <= 0 and (not suspicious(raw) or self._is_harmless(raw))):
                    self._skim(number, raw)
                else:
                    self._look(number, raw)
        for stream in self._streams.values():
            self._tracebacks(stream, stream.tracebacks.end())
            self.endings += stream.summary.end()
        for event, of, before in self._since:
            event.after = (self._ordinary if of is None else of.ordinary) - before
        self.suspects = [event for event, before in self._late if self._ordinary - before < _NEAR_END]

    def last_words(self) -> list[Quote]:
        """The last ordinary lines."""
        return [Quote(self._file.name, number, raw.rstrip()[:_LONGEST_QUOTE]) for number, raw in self._last]

    def _skim(self, number: int, raw: str) -> None:
        """An ordinary line far from any event: it counts, and it may show one more rank."""
        if not raw.strip():
            return
        self._ordinary += 1
        self._last.append((number, raw))
        head = raw[: raw.find(":", 0, _LONGEST_LABEL) + 1]
        if head and head not in self._heads and len(self._heads) < _MOST_KINDS:
            self._heads.add(head)
            rank = self._rank_of(parse(raw, labelled=self._labelled))
            self.ranks |= {rank} if rank is not None else set()

    def _is_harmless(self, raw: str) -> bool:
        return self._harmless.get(_DIGITS.sub("0", raw[:200]), 0) >= _OFTEN

    def _look(self, number: int, raw: str) -> None:
        if raw.startswith(_ATTEMPTS):
            self._clear()
            return
        self._labelled = self._labelled or (raw[:4].strip()[:1].isdecimal() and is_labelled([raw]))
        if self._line(number, parse(raw, labelled=self._labelled)):
            self._close = max(self._close, _CLOSE)
            return
        self._close -= 1
        if len(self._harmless) < _MOST_KINDS:
            kind = _DIGITS.sub("0", raw[:200])
            self._harmless[kind] = self._harmless.get(kind, 0) + 1

    def _line(self, number: int, line: Line) -> bool:
        """Whether the line says something of a failure."""
        text = line.text
        quote = Quote(self._file.name, number, line.raw[:_LONGEST_QUOTE])
        order = next(self._order)
        times = [line.time] if line.time is not None else [stamp(raw) for _, raw in reversed(self._last)]
        self._time = next((time for time in times if time is not None), self._time)
        self._agents |= "torch/distributed/elastic/" in text or "torch/distributed/run.py" in text
        rank = line.rank if line.rank is not None else self.rank
        if rank is not None:
            self.ranks.add(rank)
        key: object = line.rank if line.rank is not None else (line.local, line.task)
        key = key if len(self._streams) < _MOST_KINDS else None
        stream = self._streams.setdefault(key, _Stream())
        if stream.summary.feed(text, quote):
            self._tracebacks(stream, stream.tracebacks.take())
            self.endings += stream.summary.take()
            return True
        of = stream.summary.rank if stream.summary.active else self._rank_of(line)
        alone = not line.warning and stream.before is None
        inside = stream.tracebacks.feed(text, quote, of, (order, self._time), alone=alone)
        self._tracebacks(stream, stream.tracebacks.take())
        if inside:
            return True
        text = _JSON.sub("", text)
        if text.startswith(SOURCE) or not suspicious(text) or _FRAME_OF_CPP.match(text):
            return self._quiet(text, quote, stream)
        endings = ending_of(text, quote, order)
        self.endings += endings
        if found := stuck_of(text, line.rank, quote):
            self.stuck.append(found)
        signature = self._matcher.signature_of(text)
        event = Event(
            signature or ERROR_LINE, [quote], text.strip()[:_LONGEST_QUOTE], order, self._file.name, of
        )
        event.time = self._time
        event.warning = line.warning and not event.signature.warned
        event.labelled = line.rank is not None or self.rank is not None
        if signature is None:
            said = self._quiet(text, quote, stream) or bool(endings)
            if (
                (_ERROR_LINE.match(_METRIC.sub("", text)) or _LEVEL.match(text))
                and not line.warning
                and not ENDED_NOTHING.match(text)
            ):
                self._late.append((event, self._ordinary))
                return True
            return said
        if stream.before and signature.name == "python-syntax-error":
            event.quotes.insert(0, stream.before)
        if len(endings) == 1 and endings[0].launcher == "srun":
            event.host, event.rank = endings[0].host, None if self._agents else endings[0].exit.rank
        known = self._add(event, stream)
        stream.faults = known if text.startswith("Fatal Python error") else None
        return True

    def _rank_of(self, line: Line) -> int | None:
        if line.rank is not None:
            return line.rank
        is_rank = line.task is not None and line.local is None and not self._agents
        if is_rank and not line.text.startswith(("srun:", "slurmstepd")):
            return line.task
        return self.rank

    def _quiet(self, text: str, quote: Quote, stream: _Stream) -> bool:
        """A line without a signature; whether it continues something that has one."""
        if stream.faults is not None and _FAULT_FRAME.match(text):
            if len(stream.faults.quotes) < 4:
                stream.faults.quotes.append(quote)
            return True
        if _SYNTAX_FRAME.match(text):
            stream.before = quote
        elif not text.startswith("   "):
            stream.before = None
        if text.strip() and not text.startswith(_EPILOGUE) and not text.endswith(" FAILED"):
            self._ordinary += 1
            stream.ordinary += 1
            self._last.append((quote.line, quote.text))
        return stream.before is not None

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
        telling = [quote for quote in named.more if signature.regex.search(quote.text)]
        if not signature.regex.search(named.said):  # the message says more in its next lines
            quotes += telling[:1] or named.last_error or named.more[: named.said.endswith(":")]
        said, (order, time) = named.title[:_LONGEST_QUOTE], trace.at
        event = Event(
            signature, list(dict.fromkeys(quotes)), said, order, self._file.name, trace.rank, time=time
        )
        event.traceback, event.labelled = True, trace.rank is not None
        if trace.rank is None and (found := re.search(r"\bprocess (\d+) terminated with", said)):
            event.rank = int(found[1])
        return event

    def _add(self, event: Event, stream: _Stream) -> Event | None:
        """The event as it is kept: of several that say the same it is the first."""
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
        if event.labelled:  # the lines of its stream are counted from now on
            self._close = _ALL
        of = stream if event.labelled else None
        self._since.append((event, of, stream.ordinary if of else self._ordinary))
        return event


def _signature_of_chain(chain: Sequence[Traceback]) -> tuple[Signature, Traceback]:
    """The signature that explains most, and the exception that has it; among equals the earlier one, which caused
    the later. Without one: the last exception, or the innermost of those that were handed on."""
    found = [(one, signature) for one in chain if (signature := signature_of(one.text, suspected=True))]
    if found:
        best = max(signature.level for _, signature in found)
        named, signature = next(pair for pair in found if pair[1].level is best)
        if best is Level.ROOT or len(found) == len(chain):
            return signature, named
    named = next(one for one in reversed(chain) if not signature_of(one.text, suspected=True))
    if not named.finished:
        return CUT_OFF, named
    raised = _RAISES.match(named.source)
    if raised and (known := signature_of_place(named.frames[-1].file)):
        return known, named
    if not named.frames:
        return EXCEPTION_LINE, named
    # What the script says in its own words is the cause; what Python or a library says of a line seldom is.
    return PYTHON_EXCEPTION if raised and not named.frames[-1].is_library else UNEXPECTED, named
