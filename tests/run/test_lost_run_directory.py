"""A full disk, a run directory that is deleted, hostile files in it: the script's own result is told."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rankup_process import Started, script

pytestmark = pytest.mark.usefixtures("warm_python")

FILLS = """
import os, sys
print("begins")
try:
    with open(os.environ["RANKUP_RUN_DIR"] + "/big", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
except OSError:
    pass
for i in range(3000):
    print("line", i)
print("sees", os.environ["RANK"], file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def small_disk(tmp_path):
    """What starts a command with 256 KiB mounted where the runs go, which nobody else sees: a mount below /tmp would
    change what a rehearsal has to do."""
    (tmp_path / "runs").mkdir()
    mount = 'mount -t tmpfs -o size=256k tmpfs runs && eval "$PREPARE" && exec "$@"'
    starter = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    tried = subprocess.run([*starter, "true"], cwd=tmp_path, capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {tried.stderr}")
    return starter


def spare_of(err: str) -> Path:
    (hint,) = [line for line in err.splitlines() if "what it printed since then is in " in line]
    return Path(hint.rpartition(" ")[2])


@pytest.mark.slow
@pytest.mark.own_python
@pytest.mark.parametrize(("ranks", "code"), [(2, 0), pytest.param(1, 3, marks=pytest.mark.campaign)])
def test_a_disk_that_fills_up_does_not_end_the_script(tmp_path, small_disk, ranks, code):
    name = script(tmp_path, FILLS)
    run = Started(tmp_path, "--nproc-per-node", str(ranks), name, str(code), starter=small_disk).end()
    assert run.code == (1 if code else 0), run.err
    assert "Traceback" not in run.err
    for rank in range(ranks):
        label = f"[rank {rank}] " if ranks > 1 else ""
        assert f"{label}begins\n" in run.out
        assert f"{label}line 2999\n" in run.out
        assert f"{label}sees {rank}\n" in run.err
    (lost,) = [line for line in run.err.splitlines() if "[run-directory-lost]" in line]
    assert lost.startswith("error: the run directory could not take all that was written to it")
    end = "rankup: failed with exit code 3 after " if code else "rankup: done after "
    assert any(line.startswith(end) for line in run.own)
    shutil.rmtree(spare_of(run.err))


@pytest.mark.own_python
def test_a_disk_that_is_full_is_an_error_before_anything_runs(tmp_path, small_disk):
    fill = {"PREPARE": "dd if=/dev/zero of=runs/big bs=4096 2>dd.err; test -s runs/big"}
    run = Started(tmp_path, script(tmp_path, "open('ran', 'w')"), env=fill, starter=small_disk).end()
    assert run.code == 2
    assert run.err.splitlines()[0].endswith("[unwritable-directory]")
    assert "Traceback" not in run.err
    assert not (tmp_path / "ran").exists()


def test_a_run_directory_that_is_deleted_does_not_end_the_script(tmp_path):
    name = script(
        tmp_path,
        """
        import os, pathlib, shutil, sys, time
        print("before")
        time.sleep(1)
        shutil.rmtree(os.environ["RANKUP_RUN_DIR"])
        print("after")
        sys.exit(4)
        """,
    )
    run = Started(tmp_path, name).end()
    assert (run.code, run.out) == (1, "before\nafter\n")
    assert "Traceback" not in run.err
    assert "error: the script failed: exit code 4 [worker-failed]" in run.err
    assert "error: the run directory was deleted while the run went on; " in run.err
    assert run.own[-1].startswith("rankup: failed with exit code 4 after ")
    shutil.rmtree(spare_of(run.err))


def test_words_that_the_script_leaves_for_rankup_may_be_anything(tmp_path):
    name = script(
        tmp_path,
        """
        import os, pathlib
        run = pathlib.Path(os.environ["RANKUP_RUN_DIR"])
        (run / "outcome").write_text("nonsense")
        (run / "outcome.json").write_text("{half")
        (run / "logs" / "events.jsonl").open("a").write("{half\\n")
        """,
    )
    run = Started(tmp_path, name).end()
    assert (run.code, run.outcome["outcome"]) == (0, "done"), run.err


@pytest.mark.slow
@pytest.mark.own_python
def test_archives_and_directories_are_scripts(tmp_path):
    app = tmp_path / "app"
    app.mkdir()
    script(app, "import sys; print('app', sys.argv[1:])", "__main__.py")
    shutil.make_archive(str(tmp_path / "app"), "zip", app)
    (tmp_path / "app.zip").rename(tmp_path / "app.pyz")
    for name in ("app", "app.pyz"):
        run = Started(tmp_path, name, "-x").end()
        assert (run.code, run.out) == (0, "app ['-x']\n"), run.err
