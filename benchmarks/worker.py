"""``python -m benchmarks.worker BENCH NAME THREADS SETTINGS``: one contender; it runs a round for each line of input.

A contender is a function of the settings. It sets everything up and returns ``play``, which runs one round.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module

import torch

# One round. Returns its seconds if a library's set-up must not count; None if the whole call counts.
Play = Callable[[], float | None]


def main() -> None:
    bench, name, threads, settings = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print to stdout, which is for the answers
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    play: Play = import_module(f"benchmarks.{bench}").CONTENDERS[name](**json.loads(settings))
    for _ in sys.stdin:
        began = time.perf_counter()
        own = play()
        seconds = time.perf_counter() - began if own is None else own
        answers.write(json.dumps({"seconds": seconds, "threads": torch.get_num_threads()}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
