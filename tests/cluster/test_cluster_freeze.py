"""``submit --freeze`` on a real SLURM: all attempts run the code as it was at the submit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cluster_jobs import begin_again, log, rankup, submit
from lab import HEAD, Lab

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

WORKS = """
attempt=$(wc -l <"$RANKUP_RUN_DIR/attempts")
echo "attempt $attempt runs VERSION"
[ "$attempt" = 1 ] || exit 0
while [ ! -e "$RANKUP_RUN_DIR/STOP" ]; do sleep 0.2; done
echo requeue >"$RANKUP_RUN_DIR/outcome"
"""


@pytest.mark.slow
def test_edits_after_the_submit_and_between_attempts_do_not_reach_the_job(cluster: Lab):
    folder = cluster.shared / "frozen"
    folder.mkdir()
    script = folder / "works.sh"

    def edit(version: str) -> None:
        script.write_text(WORKS.replace("VERSION", version))

    edit("the first version")
    (folder / "job.toml").write_text(
        f'[job]\ncommand = ["bash", "works.sh"]\nfolder = "{folder}"\nfreeze = true\n'
    )
    subprocess.run(["git", "-C", folder, "init", "--quiet"], check=True)
    answer = submit(cluster, "--name", "frozen", "--directive=--hold", "frozen/job.toml")
    job = answer["job"]
    edit("the second version")
    assert cluster.run(HEAD, ["scontrol", "release", job]).code == 0
    cluster.until(lambda: "attempt 1 runs" in log(answer))
    edit("the third version")
    assert cluster.run(HEAD, ["scancel", "--batch", "--signal=USR1", job]).code == 0
    begin_again(cluster, job)
    assert cluster.wait_for(job, timeout=200) == "COMPLETED", log(answer)
    assert log(answer).count("runs the first version") == 2, log(answer)
    assert "frozen: 2 files, sha256 " in rankup(cluster, "status", answer["run"]).out
    assert "the first version" in (Path(answer["run"]) / "code" / "works.sh").read_text()
