"""Sums of an epoch: what the code before an inner loop begins anew in each epoch (``total = 0.0``).

Most of it only prints, and a resume in the middle of an epoch says which of it begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankup.core.whole_lines import say
from rankup.runtime.unregistered.cures import listed
from rankup.runtime.unregistered.marks import Mark


class Sums:
    """Of the epoch that runs. ``epoch``: the marks before its first batch; nothing after its last one.
    ``interrupted``: the sums that a snapshot has, until the epoch goes on in which it was taken."""

    def __init__(self) -> None:
        self.epoch: dict[str, Mark] = {}
        self.interrupted: Mapping[str, list[str]] = {}

    def begin(self, marks: dict[str, Mark]) -> None:
        self.epoch = marks
        anew = [
            f"{path} ({was} when saved, {marks[path].text} now)"
            for path, (begun, was) in self.interrupted.items()
            if path in marks and marks[path].digest == begun
        ]
        self.interrupted = {}
        if anew:
            say(
                "warning: an epoch is resumed in its middle, and what the script begins in each epoch begins anew: "
                f"{listed(anew)}. A sum counts the rest of the epoch alone (run.meter keeps sums); what the steps use "
                "(a hidden state, an optimizer) is lost, unless it is made before the loop and registered, with "
                "per_rank=True where each rank has its own"
            )

    def end(self) -> None:
        self.epoch = {}

    def state(self, now: Mapping[str, Mark]) -> dict[str, list[str]]:
        """What has changed since the epoch's first batch: path → [its digest then, its text now]."""
        return {
            path: [before.digest, now[path].text]
            for path, before in self.epoch.items()
            if path in now and now[path].digest != before.digest
        }
