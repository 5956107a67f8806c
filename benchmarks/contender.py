"""A contender in a process of its own. It runs one round at a time; between rounds it waits and costs nothing."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rankup.core.shell import PIPE, start


class Contender:
    """``with Contender("steps", "Fabric", {"steps": 200}, threads=1) as it: it.round()`` → seconds.

    ``variables`` are added to its environment.
    """

    def __init__(
        self,
        bench: str,
        name: str,
        settings: Mapping[str, Any],
        threads: int,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._threads = threads
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._process = start(
            [sys.executable, "-m", "benchmarks.worker", bench, name, str(threads), json.dumps(settings)],
            # All contenders use the CPU; some libraries would choose a GPU by themselves.
            env={
                **os.environ,
                "OMP_NUM_THREADS": str(threads),
                "CUDA_VISIBLE_DEVICES": "",
                **(variables or {}),
            },
            stdin=PIPE,
            stdout=PIPE,
            stderr=self._stderr,
            die_with_parent=True,
        )

    def round(self) -> float:
        """Run one round. Returns its seconds, by the contender's own clock."""
        self.go()
        return self.seconds()

    def go(self) -> None:
        """Begin a round; ``seconds`` waits for its end."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # seconds() reports the failure
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()

    def seconds(self) -> float:
        """The seconds of the round that ``go`` began."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._stderr.seek(0)
            raise SystemExit(f"{self._name} failed:\n{self._stderr.read().decode(errors='replace')}")
        answer = json.loads(line)
        if answer["threads"] != self._threads:  # with other threads it would not be the same work
            raise SystemExit(f"{self._name} computes with {answer['threads']} threads, not {self._threads}")
        return float(answer["seconds"])

    def __enter__(self) -> Contender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()  # the end of its input is the end of its loop
        self._process.stdout.close()
        self._process.wait()
        self._stderr.close()
