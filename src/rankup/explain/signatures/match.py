"""The signature of a text: the one that explains most; among equals the first in the tables."""

from __future__ import annotations

from functools import lru_cache

from rankup.explain.signatures.collectives import COLLECTIVES
from rankup.explain.signatures.files import FILES
from rankup.explain.signatures.loaders import LOADERS
from rankup.explain.signatures.models import MODELS
from rankup.explain.signatures.nccl import NCCL
from rankup.explain.signatures.pbs import PBS
from rankup.explain.signatures.python import PYTHON
from rankup.explain.signatures.rendezvous import RENDEZVOUS
from rankup.explain.signatures.signature import Level, Signature
from rankup.explain.signatures.slurm import SLURM
from rankup.explain.signatures.slurm_submit import SLURM_SUBMIT
from rankup.explain.signatures.system import SYSTEM

SIGNATURES: tuple[Signature, ...] = (
    *SLURM,
    *SLURM_SUBMIT,
    *PBS,
    *NCCL,
    *RENDEZVOUS,
    *COLLECTIVES,
    *MODELS,
    *FILES,
    *LOADERS,
    *PYTHON,
    *SYSTEM,
)
# A log has millions of lines that match nothing: a line without one of these words is not looked at.
_WORDS = (
    "error", "fail", "kill", "abort", "exception", "time", "unable", "cannot", "can't", "not found", "no such",
    "invalid", "denied", "cancel", "exceed", "fatal", "signal", "closed", "refused", "reset", "broken pipe", "xid",
    "ecc", "terminat", "watchdog", "network", "plugin", "duplicate", "image", "assert", "illegal", "segmentation",
    "memory", "oom", "space", "quota", "locate", "warning", "die", "deleted", "unreachable", "route", "dos line",
    "requested", "allocated", "asked", "interrupt", "corrupt", "attempt", "free(", "unrecognized", "qsub", "preempt",
    "dead", "undefined", "unknown", "destroy_process", "aggregate", "bad", "mark", "gpus-per-task", "cpus-per-task",
)  # fmt: skip
_LONGEST = 4000


def suspicious(text: str) -> bool:
    """Whether ``text`` may match a signature."""
    lower = text.lower()
    return any(word in lower for word in _WORDS)


def signature_of(text: str) -> Signature | None:
    return _signature_of(text[:_LONGEST]) if suspicious(text) else None


@lru_cache(maxsize=4096)  # the same line comes from each rank
def _signature_of(text: str) -> Signature | None:
    found = [signature for signature in SIGNATURES if signature.regex.search(text)]
    # Noise that looks like an error is known by its own words.
    if any(signature.level is Level.NOISE for signature in found):
        return None
    return max(found, key=lambda signature: signature.level, default=None)
