"""Python's tracebacks in a stream of lines: chained ones, groups, those that a loader's worker or mp.spawn hands on."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

from rankup.explain.events import Quote

_HEADER = re.compile(
    r"(?P<group>Exception Group )?Traceback (?:of TorchScript\S*(?: \w+ code)? )?\(most recent calls? [^)]*\):?"
    r"(?: \(RANK \d+\))?\s*$"
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_FRAME_INSIDE = re.compile(r'^\s*File "[^"]+", line \d+, in \S')
_GROUP = re.compile(r"^\s+(?:\| ?|\+ (?=Exception Group)|\+-[-+]*(?= |$))")
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_SPAWNED = re.compile(r"^-- Process (\d+) terminated with the following error:")
# What stands in the header of a traceback that is part of the message before it.
_INNER = ("Original Traceback", "Traceback of TorchScript")
# An exception whose message begins with an empty line: it is the traceback of another process.
_HANDED_ON = re.compile(r"^[\w.]+:$")
_ANNOUNCED = re.compile(r":\W*$")  # or whose message goes on with no word before that traceback
# A class as its last part: with a small letter after a capital, or one of the old ones of the standard library.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?:_?[A-Z]\w*[a-z]\w*|error|gaierror|herror|timeout)(?:: |:?$)")
_DUMPED = re.compile(r"^object repr +: (\w+)\((.*)\)$")  # Python could not print the exception
_GLUED = re.compile(r"[A-Z]\w*(?:Error|Exception)$")  # the header of another process follows it in its line
# One that stands without its traceback: an excerpt, or a logger that prints the last line only.
_ALONE = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*(?:_?[A-Z]\w*(?:Error|Exception|Interrupt)|Exception)(?:: |:?$)"
    r"|^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Invalid|Conflict|NotFound|Unsupported|Died|Diverged): [A-Za-z'\"]"
    r"|^(?:[a-z_]\w*\.)+(?:exc|exceptions?|_?errors?)\.[A-Z]\w+(?:: |:?$)"
)
_LIBRARY = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d|^<(?:frozen|__array)|[/\\]bin[/\\]torchrun$"
)
# What stands before a traceback that ended nothing: of a destructor, of the logging itself, of a torchrun whose ranks
# have ended well, and which no longer waits for, or no longer finds, the other nodes.
ENDED_NOTHING = re.compile(
    r"Exception ignored (?:in|while)|--- Logging error ---|(?:E\d[^]]*\] )?Error waiting on exit barrier"
)
_LOGGED = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):\S+?:")  # a line of Python's logging
_LONGEST = 400  # lines of one traceback; what is longer is something else
_CONTINUED = 12  # lines of a message
_DIGITS = re.compile(r"\d")
_LAST_ERROR = "Last error:"
# What torch adds to the message of an error of CUDA or HIP, and to that of torch.load.
_ADVICE = (
    "Check the documentation of torch.load",
    "CUDA kernel errors might",
    "HIP kernel errors might",
    "For debugging consider passing",
    "Compile with `TORCH_",
)


@dataclass
class Frame:
    file: str
    quotes: list[Quote]
    source: str = ""  # the line of source code, without what a launcher or a logger puts before it

    def add(self, text: str, quote: Quote) -> None:
        self.source = text.strip()
        self.quotes.append(quote)

    @property
    def is_library(self) -> bool:
        return _LIBRARY.search(self.file) is not None


@dataclass
class Traceback:
    """``said`` is the line with the exception, ``message`` with the lines that continue it; ``cause`` the traceback
    that it follows from. ``own`` is the innermost frame of the script.
    """

    rank: int | None
    indent: int
    frames: list[Frame] = field(default_factory=list)
    said: str = ""
    message: str = ""
    quote: Quote | None = None
    cause: Traceback | None = None
    more: list[Quote] = field(default_factory=list)  # the lines that continue the message
    ignored: bool = False
    finished: bool = True  # the log has the exception
    nested: bool = False  # handed on by the process that wrote it: what is inside is the error itself
    flat: bool = False  # a post has lost its indents
    headless: bool = False  # an excerpt, or lines of two processes: its header is not before it
    number: int = 0
    at: tuple[int, float | None] = (0, None)  # order and time of ``said``

    @property
    def own(self) -> Frame | None:
        mine = [frame for frame in self.frames if not frame.is_library]
        return mine[-1] if mine else None

    @property
    def text(self) -> str:
        """The message; since some exceptions say little, also the file and line that raised it, the script's own line
        that called a library, and the functions from there on."""
        if not self.frames:
            return self.message
        functions = [frame.quotes[0].text.rpartition(" in ")[2] for frame in self.frames[:-20:-1]]
        called = self.own.source if self.own and self.own is not self.frames[-1] else ""
        return f"{self.message}\n@ {self.frames[-1].file}\n> {self.source}\n^ {called}\n< {' < '.join(functions)}"

    @property
    def source(self) -> str:
        """The line of source code that raised it, if it was printed."""
        return self.frames[-1].source if self.frames else ""

    @property
    def last_error(self) -> list[Quote]:
        """What NCCL itself said last, which torch hands on below its own words."""
        pairs = itertools.pairwise(self.more)
        return [quote for before, quote in pairs if before.text.rstrip().endswith(_LAST_ERROR)][:1]

    @property
    def title(self) -> str:
        """The exception, with the line that raised it where it says nothing itself: ``AssertionError``."""
        return self.said if ":" in self.said or not self.source else f"{self.said} in `{self.source}`"

    def chain(self) -> list[Traceback]:
        """From the first cause to the last exception."""
        return [*(self.cause.chain() if self.cause else []), self]


class Tracebacks:
    """Follows one stream. ``feed``: whether a line belongs to a traceback; ``take``: those that are complete."""

    def __init__(self) -> None:
        self._open: Traceback | None = None
        self._last: Traceback | None = None  # complete, but its message may go on, or another may follow
        self._continued = 0
        self._chained = False
        self._spawned: int | None = None
        self._done: list[Traceback] = []
        self._ignored = False  # whether the next one ended nothing
        self._before: Quote | None = (
            None  # the line before, if it is the assertion that an excerpt begins with
        )
        self._prefix = ""  # what stood before the header: a logger or a launcher puts it before each line

    def take(self) -> list[Traceback]:
        done, self._done = self._done, []
        return done

    def end(self) -> list[Traceback]:
        """The stream has ended: also what is unfinished."""
        if self._open is not None and self._open.frames and not self._open.headless:
            # It is cut off: its last frame is all there is.
            frame = self._open.frames[-1]
            self._close(frame.quotes[0].text.strip(), frame.quotes[0], finished=False)
        elif self._open is not None and self._open.cause is not None:
            self._last = self._open.cause  # nothing of what it caused
        self._flush()
        return self.take()

    def feed(
        self, text: str, quote: Quote, rank: int | None, at: tuple[int, float | None], *, alone: bool = False
    ) -> bool:
        """``alone``: the line may be an exception without a traceback."""
        text = _GROUP.sub("", self._without_prefix(text), count=1)
        if found := _HEADER.search(text):
            if _GLUED.match(prefix := text[: found.start()].removesuffix("Original ")):
                self.feed(prefix, quote, rank, at, alone=True)
                text = text[len(prefix) :]
            elif prefix.strip():
                # The exception of a loader's worker, whose message is its traceback, is nothing that lines begin with.
                self._prefix = "" if _EXCEPTION.match(prefix.strip()) else prefix
                text = text[len(prefix) :]
            self._begin(text, found, rank)
            return True
        if self._open is None and text.strip():
            self._ignored = ENDED_NOTHING.match(text) is not None
        if self._open is not None:
            return self._inside(text, quote, at)
        if self._last is None:
            return self._starts(text, quote, rank, at, alone=alone)
        stripped = text.strip()
        if stripped in _CHAIN:
            self._chained, self._continued = True, 0
            return True
        if spawned := _SPAWNED.match(stripped):
            self._spawned, self._chained = int(spawned[1]), True
            return True
        if not stripped:
            return True
        if self._chained:  # a traceback was announced, and something else came between
            return False
        goes_on = (
            (text[0].isspace() and not _LOGGED.match(stripped))
            or (self._continued == 0 and self._last.message.rstrip().endswith(":"))
            or _is_of_nccl(self._last.message, stripped)
            or text.startswith(_ADVICE)
        )
        if goes_on and self._continued < _CONTINUED:
            self._continued += 1
            self._last.message += "\n" + text
            self._last.more.append(quote)
            return True
        self._flush()
        return self._starts(text, quote, rank, at, alone=alone)

    def _starts(
        self, text: str, quote: Quote, rank: int | None, at: tuple[int, float | None], *, alone: bool
    ) -> bool:
        """Whether a line without a header before it belongs to a traceback: a frame, or the exception alone."""
        if _FRAME_INSIDE.match(text):
            self._open = Traceback(rank, 0, headless=True, ignored=self._ignored)
            return self._inside(text, quote, at)
        if alone and self._alone(text, quote, rank, at):
            return True
        self._before = quote if text.lstrip().startswith("assert ") else None
        return False

    def _without_prefix(self, text: str) -> str:
        """The line without what stood before the header of the traceback, whatever the numbers (a time) in it."""
        begin = text[: len(self._prefix)]
        same = self._prefix and _DIGITS.sub("0", begin) == _DIGITS.sub("0", self._prefix)
        return text[len(self._prefix) :] if same else text

    def _alone(self, text: str, quote: Quote, rank: int | None, at: tuple[int, float | None]) -> bool:
        if text.startswith("    ") or not _ALONE.match(
            text.lstrip()
        ):  # what is indented so far is source code
            return False
        self._open = Traceback(rank, 0, at=at)
        if self._before is not None:
            self._open.frames.append(Frame("", [self._before] * 2, self._before.text.strip()))
        self._close(text.strip(), quote)
        return True

    def _begin(self, text: str, found: re.Match[str], rank: int | None) -> None:
        if self._open is not None:  # another process wrote between
            self._open = None
        last = self._last
        handed_on = last is not None and bool(_HANDED_ON.match(last.said) or _ANNOUNCED.search(last.message))
        nested = any(inner in text for inner in _INNER) or self._spawned is not None or handed_on
        cause = None
        if self._last is not None and (self._chained or nested):
            cause, self._last = self._last, None
        self._flush()
        self._open = Traceback(
            rank if self._spawned is None else self._spawned, len(text) - len(text.lstrip()), cause=cause
        )
        self._open.nested, self._open.ignored = nested, self._ignored
        self._chained, self._spawned, self._ignored = False, None, False

    def _inside(self, text: str, quote: Quote, at: tuple[int, float | None]) -> bool:
        trace = self._open
        assert trace is not None
        trace.number += 1
        trace.at = at
        indent = len(text) - len(text.lstrip())
        if trace.number > _LONGEST:
            self._open = None
            return False
        if frame := _FRAME.match(text):
            # The exception stands two columns before the frames: a post may indent both, or have lost all indents.
            trace.indent, trace.flat = max(trace.indent, indent - 2), indent == 0
            trace.frames.append(Frame(frame["file"], [quote]))
            return True
        if indent > trace.indent or not text.strip():
            if trace.frames and len(trace.frames[-1].quotes) == 1 and text.strip():
                trace.frames[-1].add(text, quote)
            return True
        if _EXCEPTION.match(said := _DUMPED.sub(r"\1: \2", text.strip())):
            self._close(said, quote)
            return True
        if not trace.headless:
            return False  # a line of somebody else
        if trace.flat and len(trace.frames[-1].quotes) == 1:
            trace.frames[-1].add(text, quote)
            return True
        self._open = None
        return False

    def _close(self, said: str, quote: Quote, *, finished: bool = True) -> None:
        trace = self._open
        assert trace is not None
        trace.said, trace.message, trace.quote = said, said, quote
        self._open, self._last, self._continued = None, trace, 0
        if not finished:
            trace.finished, trace.said, trace.message = False, "a traceback that is cut off", ""

    def _flush(self) -> None:
        if self._last is not None and not self._last.ignored:
            self._done.append(self._last)
        self._last, self._chained = None, False


def _is_of_nccl(message: str, text: str) -> bool:
    """Whether a line belongs to torch's message of an error of NCCL: its own words come last, after "Last error:"."""
    return "NCCL error in" in message and (
        text.startswith(("nccl", _LAST_ERROR)) or message.rstrip().endswith(_LAST_ERROR)
    )
