"""The signature of a text: the one that explains most; among equals one that is ``better``, else the first in the
tables."""

from __future__ import annotations

import re
from functools import lru_cache

from rankup.explain.signatures.signature import Level, Signature
from rankup.explain.signatures.tables import read_signatures

SIGNATURES = read_signatures()
# A log has millions of lines that match nothing: a line without one of these words is not looked at.
# Searching for fixed words one by one is ten times as fast as one expression of them all.
_WORDS = (
    "error", "fail", "kill", "abort", "exception", "timed", "timeout", "unable", "cannot", "can't", "not found",
    "no such", "invalid", "denied", "cancel", "exceed", "fatal", "signal", "connection", "reset", "broken pipe",
    "xid", "ecc ", "terminat", "watchdog", "using network", "is unreachable", "plugin", "duplicate gpu",
    "kernel image", "assert", "illegal", "of memory", "oom", "no space", "quota", "locate", "warning",
    "job die", "deleted", "no route", "dos line", "requested", "interrupt", "corrupt", "an attempt", "free(",
    "attempting to use", "called before", "called after", "malloc",
    "unrecognized", "qsub", "preempt", "undefined", "unknown", "destroy_process", "bad ", "mark a", "per-task",
    "peer", "second time", "recursion", "format", "bound", "traceback", "root cause", 'file "', "= attempt",
    "pmi", "slots", "loss is nan", "low on resource", "fallen off", "mismatch", "no locks", "nan loss",
    "found nan", "status_", "ucx ", "stale", "locked", "dead node", "numpy", "gated repo", "no gpu",
    "insufficient", "[e ", "[e0", "[e1", "unavailable", "exit code", "expired", "segmentation fault",
    "is neither af_inet", "parameter missing", "no socket interface", "no interface", "socket creation",
    "not enough", "enforce", "busy", "duplicated gpu", "sqlite", "unset", "required", "requires", "require ",
    "refused", "incompatib", "lost", "term_", "not submitted", "no slot", "not support", "doesn't", "does not",
    "twice", "out of resource", "no longer supported", "pip install", "has no attribute", "unexpected",
    "divisible", "expected ", "is_sm", "must ", "more than", "limit", "empty", "already", "has been ",
    "too long", "execut", "munge", "credential", "core dumped", "stack smashing", "externally-managed",
    "subprocess-exited", "set_start", "daemonic", "is on the meta", "non-zero", "nonzero", "return code",
    "exit status", "compiled with", "scalar outputs", "supports ", "fp16 gradients",
    "recomputed values", "inf checks", "dtype", "could not", "truncated", "resolve ", "components were",
    "not known", "only support", "only dense", "make: ", "make[", "valid samples", "nltk downloader", "no longer alive",
    "access fault", "times out", "nccl warn", "net/ofi", "equal chunk", "larger than", "cannot work", "overflow",
    "probably activate", "to pad ", "can't move", "are not used by default", "no action", "need at least", "couldn't",
    "reducing loss", "6 feet", "library path", "tcl_async", "not compatible", "no data", "multiple of",
    "versionconflict", "diverged", "not proceeding", "is nan", "loss nan", "but these aren't", "unsupported cuda",
    "mca parameter", "that is compatible", "a problem", "no such operator",
    # the shells' words for a killed and for a crashed process, in other languages
    "杀死", "段错误", "getötet", "matado", "убито", "speicherzugriff", "de segmentation", "de segmento", "сегментир",
)  # fmt: skip
_DIGITS = re.compile(r"\d+")
_LONGEST = 4000
_ALIKE = 8  # so often lines that differ in numbers only are looked at
_MOST_KINDS = 4096


def suspicious(text: str) -> bool:
    """Whether ``text`` may match a signature."""
    lower = text.lower()
    return any(word in lower for word in _WORDS)


def signature_of(text: str, *, suspected: bool = False) -> Signature | None:
    """``suspected``: whether to look at it although no word of it is suspicious."""
    return _signature_of(text[:_LONGEST]) if suspected or suspicious(text) else None


@lru_cache(maxsize=4096)
def signature_of_place(file: str) -> Signature | None:
    """That of an exception of which only the file is known that raised it: a probable cause."""
    found = next((s for s in SIGNATURES if any(re.search(place, file) for place in s.places)), None)
    return found.perhaps if found else None


class Matcher:
    """The same for a stream of lines, in which a few kinds of lines come again and again with other numbers."""

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[Signature | None, int]] = {}

    def signature_of(self, text: str) -> Signature | None:
        kind = _DIGITS.sub("0", text[:200])
        known, times = self._kinds.get(kind, (None, 0))
        if times >= _ALIKE:
            return known
        signature = _signature_of(text[:_LONGEST])
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[kind] = signature, times + 1 if times == 0 or signature is known else 0
        return signature


@lru_cache(maxsize=4096)  # the same line comes from each rank
def _signature_of(text: str) -> Signature | None:
    found = [signature for signature in SIGNATURES if signature.regex.search(text)]
    # Noise that looks like an error is known by its own words.
    if any(signature.level is Level.NOISE for signature in found):
        return None
    best = max(found, key=lambda signature: signature.level, default=None)
    best = next((signature for signature in found if best and signature.name in best.better), best)
    return best if best is None or re.search(best.pattern, text) else best.perhaps
