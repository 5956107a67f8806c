"""``rank.py``, which stands between a launcher and one rank: a rank whose starter has ended is not started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankup.run import rank


def guarded(folder: Path, starter: int) -> subprocess.CompletedProcess[bytes]:
    (folder / "logs").mkdir()
    words = [folder / "logs", folder / "events", folder / "spare", starter]
    command = [sys.executable, "-I", "-S", rank.__file__, *map(str, words), "touch", str(folder / "begun")]
    return subprocess.run(command, timeout=240)


def test_a_rank_is_started_while_its_starter_lives(tmp_path: Path):
    assert guarded(tmp_path, os.getpid()).returncode == 0
    assert (tmp_path / "begun").exists()


@pytest.mark.parametrize("waited_for", [True, False], ids=["gone", "a zombie"])
def test_a_rank_whose_starter_was_killed_before_is_not_started(waited_for: bool, tmp_path: Path):
    """Else it would train alone: the kernel tells of a parent's death only who has asked before it."""
    starter = subprocess.Popen(["tail", "-f", "/dev/null"])
    starter.kill()
    if waited_for:
        starter.wait()
    else:
        os.waitid(os.P_PID, starter.pid, os.WEXITED | os.WNOWAIT)
    assert guarded(tmp_path, starter.pid).returncode == -9
    starter.wait()
    assert not (tmp_path / "begun").exists()
