"""``rankup scale`` as a user meets it: small real studies, and mistakes found before any run."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.cli.app import main
from rankup.cli.commands.scale import spread_grid
from rankup.cli.study_jobs import fair_threads, job_of
from rankup.cli.study_plan import read_study
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.scale.journal import Journal, StudyPlan
from rankup.scale.plan import Trial
from scale.studies import leave_records

pytestmark = pytest.mark.usefixtures("warm_python")

TINY = ("linear", "--set", "samples=64", "--epochs", "2", "--global-batch", "16", "--device", "cpu")


def command(folder: Path, *args: str) -> list[str]:
    return [sys.executable, "-m", "rankup", "scale", "--runs-root", str(folder / "runs"), *args]


def run(tokens: list[str], **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(tokens, capture_output=True, text=True, timeout=120, **more)


def study_in(folder: Path) -> Path:
    (found,) = (folder / "runs").glob("scale-*/*")
    return found


@pytest.mark.slow
def test_a_study_that_is_interrupted_goes_on_and_ends_with_table_results_and_report(tmp_path):
    study = subprocess.Popen(
        command(tmp_path, "--repeats", "1", *TINY), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while study.poll() is None and not ended(tmp_path, 1):
        time.sleep(0.05)
    study.send_signal(signal.SIGINT)
    out, err = study.communicate(timeout=240)
    assert study.returncode == 130, err
    # On a busy machine others may have ended before the signal came.
    done_runs = re.search(r"ended by SIGINT after ([123]) of 4 runs", err)
    assert done_runs and "Traceback" not in err and out == "", err
    assert err.splitlines()[1] == "run 1 of 4: nproc=1, warm-up …"
    folder = study_in(tmp_path)

    done = run([sys.executable, "-m", "rankup", "scale", "--resume", str(folder)])
    begun = re.findall(r"run (\d) of 4: nproc=", done.stderr)
    assert [int(number) for number in begun] == [*range(int(done_runs[1]) + 1, 5)]
    assert done.returncode in (0, 1), done.stderr  # 1: other tests make the machine busy
    rows = [line.split()[:6] for line in done.stdout.splitlines() if line.startswith(("none", "ddp"))]
    assert [row[:3] for row in rows] == [["none,", "1", "process"], ["ddp,", "2", "processes"]]
    assert "too few runs for a ratio" in done.stdout
    assert "where the time of a step goes" in done.stdout
    results = json.loads((folder / "results.json").read_text())
    runs = [run for one in results["configurations"] for run in one["runs"]]
    assert [run["samples"] for run in runs] == [128, 128]
    assert all(Path(run["path"]).parent == folder / "trials" for run in runs)
    assert (folder / "table.txt").read_text() in done.stdout


def ended(folder: Path, number: int) -> bool:
    files = list((folder / "runs").glob("scale-*/*/trials.jsonl"))
    return bool(files) and files[0].read_text().count('"ended"') >= number


@pytest.mark.slow
def test_a_resumed_study_prints_refused_ratios_if_it_was_begun_so(tmp_path, capsys):
    folder = tmp_path / "study"
    journal = Journal.create(folder, StudyPlan(command=["x"], grid={"nproc": (1, 2)}, allow_unfair=True))
    for trial in journal.plan.order:
        run = RunDir.create(tmp_path, f"run{trial.processes}-{trial.repeat}")
        leave_records(run, trial.processes, 4.0 / trial.processes, precision=f"of {trial.processes}")
        journal.began(trial, run.path)
        journal.ended(trial)
    journal.close()
    with pytest.raises(SystemExit) as ended:
        main(["scale", "--resume", str(folder)])
    assert ended.value.code == 1
    assert "ddp, 2 processes (unfair)" in capsys.readouterr().out
    assert "unfair" in (folder / "report" / "tables" / "comparison.csv").read_text()


SCRIPT = """
import sys
sys.exit("no such width") if sys.argv[1] == "3" else print("Training time =", 10 / int(sys.argv[1]))
"""


def test_any_program_is_measured_by_a_pattern_and_one_that_fails_does_not_lose_the_others(tmp_path):
    (tmp_path / "prints.py").write_text(SCRIPT)
    words = ["--grid", "width=1,2,3", "--metric", "Training time = ([0-9.]+)", "--repeats", "2", "--json"]
    done = run(command(tmp_path, *words, "prints.py", "{width}"), cwd=tmp_path)
    results = json.loads(done.stdout)
    assert [[r["seconds"] for r in c["runs"]] for c in results["configurations"]] == [
        [10.0] * 2,
        [5.0] * 2,
        [],
    ]
    assert results["configurations"][2]["failure"]["code"] == "worker-failed"
    assert done.returncode == 1


def test_a_pattern_that_never_matches_is_said_for_each_configuration(tmp_path):
    (tmp_path / "prints.py").write_text("print('done')\n")
    words = ["--grid", "nproc=1", "--metric", "time = ([0-9.]+)", "--repeats", "1"]
    done = run(command(tmp_path, *words, "prints.py"), cwd=tmp_path)
    assert done.returncode == 1
    assert "nothing that the run printed matches 'time = ([0-9.]+)' [metric-not-found]" in done.stdout
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ([], "nothing-to-measure"),
        (["linear", "--global-batch", "1"], "global-batch-too-small"),
        (["linear", "--repeats", "0"], "bad-repeats"),
        (["linear", "--nproc-per-node", "1,x"], "bad-grid"),
        (["linear", "--device", "cpu", "--nproc-per-node", "1,6400"], "too-many-processes"),
        (["linear", "--nproc-per-node", "1,1"], "bad-grid"),
        (["linear", "--grid", "nproc="], "bad-grid"),
        (["linear", "--grid", "nprocs=1"], "bad-grid"),
        (["linear", "--grid", "launcher=srun"], "key-not-taken"),
        (["linear", "--grid", "strategy=dp", "nproc=1,2"], "one-process-strategy"),
        (["linear", "--grid", "precision=fp8"], "bad-option"),
        (["linear", "--set", "samples"], "bad-setting"),
        (["linear", "--threads", "0"], "bad-threads"),
        (["linear", "--weak"], "no-batch-per-process"),
        (["linear", "--metric", "time"], "bad-metric"),
        (["linear", "extra"], "unexpected-argument"),
        (["linear", "--time", "1h"], "no-job"),
        (["linear", "--partition", "gpu"], "no-job"),
        (["linear", "--site", "slurm", "--grid", "nodes=1", "--time", "soon"], "bad-time"),
        (["mnist-cn"], "unknown-workload"),
        (["nowhere.py"], "script-not-found"),
        (["--lr", "1", "true"], "not-a-workload"),
        (["--repeats", "0", "true", "--lr", "1"], "bad-repeats"),  # --lr is the script's
        (["--grid", "nproc", "true"], "bad-grid"),
        (["linear", "--grid", ""], "bad-grid"),
        (["linear", "--grid", "nproc=1,2", "--baseline", "nproc=7"], "unknown-baseline"),
        (["linear", "--grid", "nproc=1,2", "--baseline", "fast"], "unknown-baseline"),
        (["--grid", "strategy=ddp", "true"], "key-not-taken"),
        (["--weak", "true"], "no-weak-scaling"),
        (["--resume", "nothing"], "no-study"),
        (["linear", "--grid", "nodes=1,2"], "no-nodes"),
    ],
)
def test_a_mistake_is_one_error_before_anything_runs(args, code, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["scale", "--runs-root", str(tmp_path / "runs"), *args])
    captured = capsys.readouterr()
    assert f"[{code}]" in captured.err
    assert caught.value.code == 2
    assert "Traceback" not in captured.err and captured.out == ""
    assert not list(tmp_path.glob("runs/*/*"))


def test_a_study_goes_on_with_its_own_plan(tmp_path, capsys):
    Journal.create(tmp_path / "s", StudyPlan(command=["linear"], grid={"nproc": (1,)})).close()
    with pytest.raises(SystemExit):
        main(["scale", "--resume", str(tmp_path / "s"), "--repeats", "5"])
    assert "[resumed-as-it-was]" in capsys.readouterr().err


def test_two_resumes_at_once_are_one_and_an_error(tmp_path, capsys):
    journal = Journal.create(tmp_path / "s", StudyPlan(command=["linear"], grid={"nproc": (1,)}))
    with journal.alone(), pytest.raises(SystemExit) as ended:
        main(["scale", "--resume", str(tmp_path / "s")])
    journal.close()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "another rankup scale works on this study: process" in said
    assert not (tmp_path / "s" / "trials").exists()


# ------------------------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("args", "spread"),
    [
        (["--grid", "a=1", "b=2", "x"], ["--grid", "a=1", "--grid", "b=2", "x"]),
        (["x", "--grid", "a=1", "b=2", "--lr", "1"], ["x", "--grid", "a=1", "--grid", "b=2", "--lr", "1"]),
        (["--grid", "a=1", "--grid", "b=2"], ["--grid", "a=1", "--grid", "b=2"]),
        (["--grid"], ["--grid"]),
        (["--grid=a=1", "x"], ["--grid=a=1", "x"]),
        (["--grid", "a=1", "t.py", "b=2"], ["--grid", "a=1", "t.py", "b=2"]),
        (
            ["--grid", "a=1", "t.py", "--grid", "b=2", "c=3"],
            ["--grid", "a=1", "t.py", "--grid", "b=2", "--grid", "c=3"],
        ),
    ],
)
def test_a_grid_takes_several_words(args, spread):
    assert spread_grid(args) == spread


@given(st.lists(st.sampled_from(["--grid", "a=1", "b=2", "x", "--lr", "--"]), max_size=8))
def test_spreading_a_grid_keeps_every_other_word_in_its_order(args):
    assert [word for word in spread_grid(args) if word != "--grid"] == [
        word for word in args if word != "--grid"
    ]


def plan(**given) -> StudyPlan:
    return StudyPlan(**{"command": ["linear"], "grid": {"nproc": (1, 2)}, **given})


def options_of(job) -> dict[str, object]:
    return json.loads(job.spec.command[-1])


def test_weak_scaling_gives_every_process_the_batch(tmp_path):
    job = job_of(plan(scaling="weak", training={"global_batch": 16}), Trial((("nproc", 2),), 1), tmp_path)
    assert options_of(job)["global_batch"] == 32


def test_the_warm_up_measures_the_parts_of_a_step_and_runs_save_nothing(tmp_path):
    warm, timed = (job_of(plan(), Trial((("nproc", 2),), repeat), tmp_path) for repeat in (0, 1))
    assert options_of(warm)["breakdown"] is True
    assert not options_of(timed).get("breakdown")
    assert options_of(timed)["snapshot_every"] == "off"
    assert (timed.spec.runs_root, timed.spec.name) == (tmp_path, "trials")


def test_a_job_gets_what_the_study_asks_for_and_is_not_requeued(tmp_path):
    asked = plan(site="slurm", flags={"time": "10m", "queue": "gpu"})
    job = job_of(asked, Trial((("nodes", 2), ("nproc", 2)), 1), tmp_path)
    assert (job.spec.nodes, job.spec.nproc_per_node, job.spec.time, job.spec.queue) == (2, 2, 600, "gpu")
    assert (job.spec.max_requeues, job.spec.runs_root, job.site.name) == (0, tmp_path, "slurm")


def test_a_study_runs_where_it_was_begun(tmp_path, monkeypatch):
    (tmp_path / "t.py").write_text("")
    asked = plan(command=["t.py"], cwd=str(tmp_path))
    monkeypatch.chdir("/")
    assert job_of(asked, Trial((("nproc", 1),), 1), tmp_path).spec.folder == tmp_path


@pytest.mark.parametrize(
    ("grid", "flags", "threads"),
    [
        ({"nproc": (1, 2)}, {}, {"cpus_per_task": 4}),
        ({"nproc": (1, 16)}, {}, {"cpus_per_task": 1}),
        ({"nproc": (1, 2), "cpus-per-task": (1,)}, {}, {}),
        ({"nproc": (1, 2)}, {"threads": 3}, {}),
    ],
)
def test_every_configuration_gets_as_many_threads_per_process(grid, flags, threads, monkeypatch):
    monkeypatch.setattr("rankup.cli.study_jobs.cpu_affinity", lambda: range(8))
    monkeypatch.setattr("rankup.cli.study_jobs.count_gpus", lambda env: 0)
    assert fair_threads(grid, flags, {}) == threads


# ------------------------------------------------------------------------------- study.toml

STUDY = """
[study]
command = ["linear"]
repeats = 4
at-once = 2
site = "slurm"
grid = {nodes = [1, 2], nproc = [1]}
training = {epochs = 2}
[study.job]
time = "10m"
"""


def test_a_study_file_says_all_that_the_options_say(tmp_path, monkeypatch):
    from rankup.cli.commands import scale

    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scale, "_run", lambda journal: None)
    with pytest.raises(SystemExit):
        main(["scale", "study.toml", "--repeats", "5"])
    (folder,) = (tmp_path / "runs").glob("scale-*/*")
    told = Journal.open(folder).plan
    assert (told.command, told.grid) == (["linear"], {"nodes": [1, 2], "nproc": [1]})
    assert (told.repeats, told.at_once, told.site) == (5, 2, "slurm")
    assert (told.flags["time"], told.training) == ("10m", {"epochs": 2})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[study]\nrepeats = 3", "requires command"),
        ("[study]\ncommand = 'linear'", "not a list"),
        ("[study]\ncommand = ['x']\nrepeats = '3'", "not a whole number"),
        ("[study]\ncommand = ['x']\nrepeat = 3", "did you mean 'repeats'?"),
        ("[study]\ncommand = ['x']\nscaling = 'big'", "strong or weak"),
        ("[study]\ncommand = ['x']\nat_once = 0", "at least 1"),
        ("[study]\ncommand = ['x']\n[study.job]\ntimes = '1h'", "did you mean 'time'?"),
        ("[study]\ncommand = ['x']\n[study.job]\nnodes = 2", "no key 'nodes'"),
        ("[study]\ncommand = ['x']\n[grid]\nnproc = 2", "[study] alone"),
        ("study = 3", "[study] alone"),
        ("[study]\ncommand = ['x', {a = 1}]", "{'a': 1}, which is not text"),
        ("[study]\ncommand = ['x']\ngrid = {lr = ['1,5', '2']}", "without commas"),
        ("[study]\ncommand = ['x']\ngrid = {lr = [[1]]}", "must be numbers or text"),
        ("[study]\ncommand = ['x']\ntraining = {epoch = 3}", "did you mean 'epochs'?"),
        ("[study]\ncommand = ['x']\ntraining = {epochs = 'two'}", "'two', which is of the wrong type"),
        ("[study]\ncommand = ['x']\ntraining = {epochs = true}", "True, which is of the wrong type"),
        ("[study]\ncommand = ['x']\ntraining = {settings = {n = 1}}", "of the wrong type"),
    ],
)
def test_a_mistake_in_a_study_file_is_one_error(tmp_path, text, named):
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(RankupError) as caught:
        read_study(tmp_path / "study.toml")
    assert caught.value.code == "bad-study"
    assert named in caught.value.message


def test_the_training_of_a_study_file_has_the_names_of_the_options(tmp_path):
    training = "{global-batch = 32, lr = 1, target-accuracy = 0.9, fused = false}"
    (tmp_path / "study.toml").write_text(f"[study]\ncommand = ['linear']\ntraining = {training}")
    told = read_study(tmp_path / "study.toml")["training"]
    assert told == {"global_batch": 32, "lr": 1, "target_accuracy": 0.9, "fused": False}
