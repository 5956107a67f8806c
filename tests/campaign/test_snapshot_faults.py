"""Several hundred ways to lose a snapshot: always the newest that is whole is resumed, or a clear error is given.

What counts is in ``benchmarks/results/snapshot-faults.json``: for each kind of fault how many cases there were, and how
they ended. A state that is neither the one nor the other fails in ``loaded``, and there must be none.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
import torch

from ranks import run_ranks
from rankup.errors import RankupError
from rankup.snapshots import disk
from rankup.snapshots.layout import Retention
from rankup.snapshots.saver import Saver
from rankup.world import World
from snapshot_faults import (
    ALONE,
    FULL,
    At,
    flip,
    killed,
    loaded,
    operations,
    resumed,
    save_with,
    saved,
    state,
)

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "snapshot-faults.json"
FILES = ["tensors-0.bin", "states-0.bin", "values.pt", "manifest.json", "SHA256SUMS"]
Cases = Iterator[tuple[str, bool]]  # how it ended, and whether that is right


def outcome(root: Path) -> str:
    """``step N`` or the code of the error; a mixture of states raises an AssertionError."""
    try:
        return f"step {resumed(root)}"
    except RankupError as error:
        return error.code


def copies(template: Path, place: Path, count: int) -> Iterator[Path]:
    for number in range(count):
        copy = place / f"{template.name}-{number}"
        yield Path(shutil.copytree(template, copy, symlinks=True))
        shutil.rmtree(copy)


def fresh(place: Path, *steps: int) -> Path:
    place.mkdir()
    return saved(place / "template", *steps)


def kills(place: Path, keep: int) -> Cases:
    """SIGKILL at every operation of the third save, of one process."""
    root = fresh(place, 1, 2)
    seen = [
        what for what, _ in operations(Path(shutil.copytree(root, place / "probe", symlinks=True)), 3, keep)
    ]
    for number, copy in enumerate(copies(root, place, len(seen))):
        assert killed(copy, 3, keep, number) == -9
        ended = outcome(copy)
        yield ended, ended == ("step 2" if number <= seen.index("rename") else "step 3")


def kills_after_damage(place: Path) -> Cases:
    """The same, where the newest snapshot is damaged already: what is durable of the third is the newest."""
    root = fresh(place, 1, 2)
    flip(root / "step-2" / "tensors-0.bin", 1000)
    seen = [what for what, _ in operations(Path(shutil.copytree(root, place / "probe", symlinks=True)), 3, 5)]
    for number, copy in enumerate(copies(root, place, len(seen))):
        assert killed(copy, 3, 5, number) == -9
        ended = outcome(copy)
        yield ended, ended == ("step 1" if number <= seen.index("rename") else "step 3")


def save_of_two(root: Path, victim: int, number: int) -> int:
    rank = World.detect().rank
    at = At(number if rank == victim else -1)
    with contextlib.suppress(RankupError, RuntimeError):  # the other one is gone
        save_with(root, 2, 1, at)
    return len(at.seen)


def kills_of_two(place: Path, victim: int) -> Cases:
    """SIGKILL of either of two ranks at every operation of a save, the other one living on."""
    root = fresh(place, 1)
    probe = Path(shutil.copytree(root, place / "probe", symlinks=True))
    count = run_ranks(save_of_two, 2, probe, victim, -1)[victim]
    for number, copy in enumerate(copies(root, place, count)):
        with pytest.raises(AssertionError, match="ended without a word"):
            run_ranks(save_of_two, 2, copy, victim, number)
        ended = outcome_of_two(copy)
        yield ended, ended in ("step 1", "step 2")


def outcome_of_two(root: Path) -> str:
    with Saver(root, ALONE, patience=10) as saver:
        found = saver.newest()
        assert found is not None
        if found.world_size == 1:
            return f"step {loaded(found)}"
        into = state(0).tensors
        found.load_tensors(into)
        assert repr(into) == repr(state(found.step).tensors)
        return f"step {found.step}"


def refusals(place: Path, failure: int) -> Cases:
    """An error of the file system at every operation: raised, and the next save succeeds."""
    root = fresh(place, 1, 2)
    seen = [what for what, _ in operations(Path(shutil.copytree(root, place / "probe", symlinks=True)), 3, 1)]
    for number, copy in enumerate(copies(root, place, len(seen))):
        code = "no error"
        with Saver(copy, ALONE, keep=Retention(last=1)) as saver:
            disk.before = At(number, failure)
            try:
                saver.save(3, state(3))
                saver.wait()
            except RankupError as error:
                code = error.code
            finally:
                disk.before = None
            found = saver.newest()
            right = found is not None and loaded(found) == (2 if number <= seen.index("rename") else 3)
            saver.save(4, state(4))
        yield code, right and code != "no error" and outcome(copy) == "step 4"


def bits(place: Path, count: int) -> Cases:
    """One bit turned over, anywhere in each file."""
    root, chance = fresh(place, 1, 2), random.Random(1)
    for file in FILES:
        size = 8 * (root / "step-2" / file).stat().st_size
        chosen = chance.sample(range(size), count)
        for bit, copy in zip(chosen, copies(root, place, count), strict=True):
            flip(copy / "step-2" / file, bit)
            ended = outcome(copy)
            yield ended, ended == "step 1"


def cuts(place: Path, count: int) -> Cases:
    """Each file cut short somewhere, and missing."""
    root, chance = fresh(place, 1, 2), random.Random(2)
    for file in FILES:
        size = (root / "step-2" / file).stat().st_size
        for length, copy in zip(
            [None, *chance.sample(range(size), count)], copies(root, place, count + 1), strict=True
        ):
            path = copy / "step-2" / file
            path.unlink() if length is None else os.truncate(path, length)
            ended = outcome(copy)
            yield ended, ended == "step 1"


def all_damaged(place: Path) -> Cases:
    """Both snapshots lost, in every pair of files."""
    root = fresh(place, 1, 2)
    pairs = [(first, second) for first in FILES for second in FILES]
    for (first, second), copy in zip(pairs, copies(root, place, len(pairs)), strict=True):
        flip(copy / "step-1" / first, 50)
        (copy / "step-2" / second).unlink()
        ended = outcome(copy)
        yield ended, ended == "no-good-snapshot"


def small_disks(place: Path) -> Cases:
    """A tmpfs that is full after any number of pages."""
    place.mkdir()
    for pages in range(1, 25):
        root = place / str(pages)
        root.mkdir()
        size = f"size={4 * (pages + 7)}k"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(root)], check=True)
        try:
            reached, code = 0, "none"
            with contextlib.suppress(RankupError), Saver(root, ALONE, keep=Retention(last=9)) as saver:
                for step in range(1, 99):
                    try:
                        saver.save(step, state(step))
                        saver.wait()
                        reached = step
                    except RankupError as error:
                        code = error.code
                        break
            ended = outcome(root) if reached else code
            yield ended, ended == (f"step {reached}" if reached else "no-space") and code == "no-space"
        finally:
            subprocess.run(["umount", str(root)], check=True)


def kinds(place: Path) -> dict[str, Cases]:
    found = {
        "SIGKILL at each operation, one process, prune": kills(place / "a", 1),
        "SIGKILL at each operation, one process, keep all": kills(place / "b", 9),
        "SIGKILL at each operation, newest damaged before": kills_after_damage(place / "c"),
        "SIGKILL of rank 0 of 2 at each operation": kills_of_two(place / "d", 0),
        "SIGKILL of rank 1 of 2 at each operation": kills_of_two(place / "e", 1),
        "no space at each operation": refusals(place / "f", FULL),
        "I/O error at each operation": refusals(place / "g", 5),
        "one bit flipped": bits(place / "h", 30),
        "a file cut short or missing": cuts(place / "i", 9),
        "every snapshot damaged": all_damaged(place / "j"),
    }
    if os.geteuid() == 0:
        found["a small tmpfs, really full"] = small_disks(place / "k")
    return found


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_no_fault_loses_more_than_the_steps_since_the_last_good_snapshot(tmp_path):
    summary, wrong = {}, []
    for kind, cases in kinds(tmp_path).items():
        endings: Counter[str] = Counter()
        for number, (ended, right) in enumerate(cases):
            endings[ended] += 1
            if not right:
                wrong.append(f"{kind}, case {number}: {ended}")
        summary[kind] = {"cases": endings.total(), "endings": dict(sorted(endings.items()))}
    total = sum(kind["cases"] for kind in summary.values())
    said = {"date": date.today().isoformat(), "torch": torch.__version__, "python": platform.python_version()}
    RESULTS.write_text(
        json.dumps({**said, "cases": total, "wrong": len(wrong), "kinds": summary}, indent=1) + "\n"
    )
    assert not wrong, wrong
    assert total >= 400
