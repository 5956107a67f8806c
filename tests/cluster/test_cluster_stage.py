"""Data on the nodes' own disks, on a real SLURM: each node has a /tmp of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cluster_jobs import begin_again, log, rankup, submit
from lab import HEAD, Lab

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

# Stops when it is asked (its first attempt), waits to be killed (its second), and ends (its third).
WORKS = """
attempt=$(wc -l <"$RANKUP_RUN_DIR/attempts")
[ "$(cat "$1/data/words")" = "the words" ] || exit 3
mkdir -p "$1/out"
echo "$attempt" >>"$1/out/rank-$RANK"
echo "attempt $attempt: rank $RANK works"
case $attempt in
1) while [ ! -e "$RANKUP_RUN_DIR/STOP" ]; do sleep 0.2; done; echo requeue >"$RANKUP_RUN_DIR/outcome" ;;
2) sleep 300 ;;
esac
"""
JOB = ("--nodes", "2", "--nproc-per-node", "1", "--launcher", "srun")


@pytest.fixture
def data(cluster: Lab) -> Path:
    folder = cluster.shared / "words"
    folder.mkdir(exist_ok=True)
    (folder / "words").write_text("the words")
    (cluster.shared / "works.sh").write_text(WORKS)
    archive = cluster.shared / "words.tar.gz"
    subprocess.run(["tar", "-C", folder, "-czf", archive, "."], check=True)
    sums = subprocess.run(["sha256sum", archive], check=True, capture_output=True, text=True)
    archive.with_name("words.tar.gz.sha256").write_text(sums.stdout)
    return archive


def on_disk(cluster: Lab, node: str) -> str:
    return cluster.run(node, ["find", "/tmp", "-maxdepth", "1", "-name", "rankup-*"]).out


@pytest.mark.slow
def test_a_stopped_and_a_killed_attempt_are_staged_again_and_all_results_come_back(cluster: Lab, data: Path):
    words = ("--stage", f"data={data}", "--back", "out/*", "bash", "works.sh", "{stage}")
    answer = submit(cluster, "--name", "staged", *JOB, *words)
    job, run = answer["job"], Path(answer["run"])
    cluster.until(lambda: log(answer).count("attempt 1: rank") == 2)
    assert all(on_disk(cluster, node) == f"/tmp/rankup-{job}\n" for node in cluster.nodes)
    assert cluster.run(HEAD, ["scancel", "--batch", "--signal=USR1", job]).code == 0
    begin_again(cluster, job)
    results = [run / "results" / f"node-{i}" / "out" / f"rank-{i}" for i in (0, 1)]
    assert [path.read_text() for path in results] == ["1\n"] * 2, log(answer)
    assert not any(on_disk(cluster, node) for node in cluster.nodes)

    cluster.until(lambda: log(answer).count("attempt 2: rank") == 2)
    assert cluster.run(HEAD, ["scontrol", "requeue", job]).code == 0
    begin_again(cluster, job)
    assert cluster.wait_for(job, timeout=200) == "COMPLETED", log(answer)
    said = log(answer)
    assert said.count("attempt 3: rank") == 2, said
    # The first attempt's results were there again. What the killed one wrote is there, where its node still had it.
    assert all(path.read_text() in ("1\n3\n", "1\n2\n3\n") for path in results), said
    assert said.count("sha256") >= 6 and (run / "outcome").read_text() == "done\n"
    assert not any(on_disk(cluster, node) for node in cluster.nodes)


def test_a_cancelled_job_brings_back_what_its_first_node_has(cluster: Lab, data: Path):
    waits = 'trap \'exit 0\' TERM; mkdir -p "$0/out"; echo x >"$0/out/$RANK"; echo works; sleep 300 & wait'
    words = ("--stage", f"data={data}", "--back", "out/*", "bash", "-c", waits, "{stage}")
    answer = submit(cluster, "--name", "cancelled-stage", *JOB, *words)
    cluster.until(lambda: log(answer).count("works") == 2)
    assert rankup(cluster, "cancel", answer["run"]).code == 0
    cluster.wait_for(answer["job"])
    assert (Path(answer["run"]) / "results" / "node-0" / "out" / "0").exists(), log(answer)


def test_a_wrong_checksum_and_a_full_disk_end_a_job_of_two_nodes_before_its_ranks(cluster: Lab, data: Path):
    large = cluster.shared / "large"
    with large.open("wb") as file:
        file.truncate(1 << 43)  # 8.8 TB, of no blocks
    sums = data.with_name("words.tar.gz.sha256")
    sums.write_text(f"{'0' * 64}  words.tar.gz\n")
    jobs = [
        submit(cluster, "--name", "faults", *JOB, "--stage", f"data={path}", "bash", "works.sh", "{stage}")
        for path in (data, large)
    ]
    for answer, code in zip(jobs, ("stage-wrong-checksum", "stage-no-space"), strict=True):
        assert cluster.wait_for(answer["job"]) == "FAILED", log(answer)
        assert f": {code}: " in (Path(answer["run"]) / "why").read_text(), log(answer)
        assert "attempt 1: rank" not in log(answer)
