"""Flags over file over site over defaults, each value with its origin; mistakes are one sentence each."""

from __future__ import annotations

import sys

import pytest

from asking import ask
from rankup.errors import RankupError
from rankup.spec.jobspec import RUN_ONLY, JobSpec


def test_each_source_wins_over_the_next_and_is_named(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text(
        '[job]\nscript = "train.py"\nmem = "64G"\ntime = "2h"\n[job.env]\nA = "file"\nB = "file"\n'
    )
    resolved = ask(tmp_path, site="della", file=file, time="90m", nodes=2, env={"B": "flag"})
    spec, origin = resolved.spec, resolved.origin
    assert (spec.time, origin["time"]) == (5400, "flag")
    assert (spec.mem, origin["mem"]) == (64 * 1024, str(file))
    assert (spec.conda, origin["conda"]) == ("torch-env", "site della")
    assert (spec.stop_before, origin["stop_before"], spec.lead) == (None, "default", 300)
    assert origin["site"] == "flag"
    assert spec.env == {"A": "file", "B": "flag"}
    assert (origin["env.A"], origin["env.B"]) == (str(file), "flag")


def test_every_value_has_an_origin_and_nothing_else_has(tmp_path):
    resolved = ask(tmp_path, site="local")
    assert set(resolved.origin) == {"site", *JobSpec.model_fields} - {"env", *RUN_ONLY}


def test_variables_are_merged_by_name_and_lists_are_replaced(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text('[job]\nscript = "train.py"\nmodules = ["a", "b"]\nenv = { A = 1, B = "file" }\n')
    resolved = ask(tmp_path, file=file, modules=("c",), env={"B": "flag"})
    assert resolved.spec.modules == ("c",)
    assert resolved.spec.env == {"A": "1", "B": "flag"}


@pytest.mark.parametrize(
    ("gpus", "nodes", "queue", "launcher"),
    [(0, 1, "cpu", "single"), (1, 1, "gpu", "srun"), (4, 2, "gpu", "srun"), (0, 2, "cpu", "torchrun")],
)
def test_a_sites_conditional_defaults_follow_from_gpus(tmp_path, gpus, nodes, queue, launcher):
    spec = ask(tmp_path, site="cyclone", gpus_per_node=gpus, nodes=nodes).spec
    assert (spec.queue, spec.launcher) == (queue, launcher)
    assert spec.cpus_per_task == (None if gpus else 10)


@pytest.mark.parametrize(("nodes", "launcher"), [(1, "torchrun"), (2, "mpirun")])
def test_a_sites_conditional_defaults_follow_from_nodes(tmp_path, nodes, launcher):
    resolved = ask(tmp_path, site="sockeye", account="a", nodes=nodes, gpus_per_node=4)
    assert resolved.spec.launcher == launcher
    assert resolved.origin["launcher"] == f"site sockeye, when.{'one_node' if nodes == 1 else 'many_nodes'}"


@pytest.mark.parametrize(
    ("asked", "derived"),
    [
        ({}, {"nproc_per_node": 1, "launcher": "single"}),
        ({"gpus_per_node": 4}, {"nproc_per_node": 4, "launcher": "torchrun"}),
        ({"gpus_per_node": 4, "nproc_per_node": 1}, {"nproc_per_node": 1, "launcher": "single"}),
        ({"nodes": 2}, {"nproc_per_node": 1, "launcher": "torchrun"}),
        ({"max_restarts": 1}, {"launcher": "torchrun"}),
    ],
)
def test_what_nobody_said_is_derived(tmp_path, asked, derived):
    resolved = ask(tmp_path, **asked)
    assert {key: getattr(resolved.spec, key) for key in derived} == derived
    assert all(resolved.origin[key] == "derived" for key in derived if key not in asked)


def test_memory_follows_the_gpus_where_the_site_shares_it_out(tmp_path):
    assert ask(tmp_path, site="olivia", account="a", gpus_per_node=4).spec.mem == 440 * 1024
    assert ask(tmp_path, site="olivia", account="a", gpus_per_node=1).spec.mem == 110 * 1024
    assert ask(tmp_path, site="olivia", account="a", gpus_per_node=1, mem="").spec.mem is None


def test_the_running_python_runs_the_script_where_no_environment_is_given(tmp_path):
    assert ask(tmp_path).spec.python == sys.executable
    assert ask(tmp_path, venv="env").spec.python == "python"
    assert ask(tmp_path, site="cyclone", gpus_per_node=1).spec.python == "python"  # its modules bring one
    assert ask(tmp_path, site="cyclone").spec.python == sys.executable  # they are for jobs with GPUs


@pytest.mark.parametrize(("command", "name"), [(("train.py",), "train"), (("-m", "pkg.my mod"), "my-mod")])
def test_the_name_is_the_scripts(tmp_path, command, name):
    (tmp_path / "pkg").mkdir()
    assert ask(tmp_path, *command).spec.name == name


def test_relative_paths_start_where_the_command_runs_and_names_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    spec = ask(tmp_path, venv="env", binds=("data:/data:ro",), runs_root="~/runs").spec
    assert spec.venv == str(tmp_path / "env")
    assert spec.binds == (f"{tmp_path}/data:/data:ro",)
    assert str(spec.runs_root) == "/home/me/runs"
    assert ask(tmp_path, conda="torch-env").spec.conda == "torch-env"
    assert ask(tmp_path, conda="envs/x").spec.conda == str(tmp_path / "envs/x")
    assert ask(tmp_path, container="$SCRATCH/x.sif").spec.container == "$SCRATCH/x.sif"
    assert ask(tmp_path, container="docker://a/b").spec.container == "docker://a/b"


def test_a_flag_decides_whether_a_variable_is_secret(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text('[job]\nscript = "train.py"\nsecrets = ["A"]\nenv = { B = "plain" }\n')
    environ = {"A": "1", "B": "2"}
    assert ask(tmp_path, file=file, environ=environ, secrets=("B",)).spec.env == {}
    plain = ask(tmp_path, file=file, environ=environ, env={"A": "x"}).spec
    assert (plain.secrets, plain.env) == ((), {"A": "x", "B": "plain"})


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        ({"site": "cyclon"}, "unknown-site", "did you mean 'cyclone'"),
        ({"site": "olivia"}, "missing-account", "--account"),
        ({"site": "cyclone", "gpus_per_node": 8}, "impossible-size", "has 4"),
        ({"site": "eap", "gpus_per_node": 4, "cpus_per_task": 100}, "impossible-size", "400 cores"),
        ({"site": "olivia", "account": "a", "gpus_per_node": 1, "mem": "1T"}, "impossible-size", "768G"),
        (
            {"site": "cyclone", "launcher": "mpirun", "nodes": 2},
            "launcher-not-allowed",
            "--launcher srun or torchrun",
        ),
        ({"site": "local", "nodes": 2}, "impossible-size", "one machine"),
        ({"env": {"1X": "y"}}, "bad-env", "'1X' cannot name a variable"),
        ({"site": "cyclone", "gpus_per_node": 4, "max_restarts": 1}, "impossible-job", "launcher is srun"),
        ({"launcher": "torchrum"}, "bad-launcher", "did you mean 'torchrun'"),
        ({"time": "90"}, "bad-time", "--time: '90' is not a duration"),
        ({"mem": "32"}, "bad-mem", "--mem: '32' is not a size"),
        ({"nodes": 0}, "bad-nodes", "--nodes must be at least 1, got 0"),
        ({"array": "x"}, "bad-array", "--array"),
        ({"account": "two words"}, "bad-account", "--account"),
        ({"directives": ("--a\n--b",)}, "bad-directives", "--directive"),
        ({"nproc_per_node": 2, "gpus_per_node": 1}, "impossible-job", "share 1 GPUs"),
        ({"secrets": ("TOKEN",)}, "unset-secret", "TOKEN"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_code_2(tmp_path, asked, code, words):
    with pytest.raises(RankupError) as caught:
        ask(tmp_path, **asked)
    assert (caught.value.code, caught.value.exit_code) == (code, 2)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (("trian.py",), "script-not-found", "did you mean 'train.py'"),
        (("./nowhere/x.sh",), "script-not-found", "nowhere"),
        (("no-such-program",), "script-not-found", "no-such-program"),
        ((".",), "script-not-found", "'.' is a folder without __main__.py"),
        (("-m",), "no-script", "module"),
        (("-m", "no_such_package.train"), "module-not-found", "'no_such_package.train'"),
        (("train.py", "\0"), "bad-command", "null"),
    ],
)
def test_a_command_that_is_not_there_is_found_before_the_queue(tmp_path, command, code, words):
    with pytest.raises(RankupError) as caught:
        ask(tmp_path, *command)
    assert caught.value.code == code
    assert words in str(caught.value)


def test_a_folder_that_python_cannot_start_names_the_scripts_in_it(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").touch()
    for flags in ({}, {"modules": ("tool",)}):
        with pytest.raises(RankupError, match=r"'src/' is a folder without __main__\.py") as caught:
            ask(tmp_path, "src/", **flags)
        assert "src/main.py" in str(caught.value.hint)
    (tmp_path / "src" / "__main__.py").touch()
    assert ask(tmp_path, "src").spec.command == ("src",)
    (tmp_path / "tool").mkdir()  # the program of that name may be meant
    assert ask(tmp_path, "tool", modules=("tool",)).spec.command == ("tool",)


def test_a_program_that_an_environment_may_bring_is_not_looked_for(tmp_path):
    assert ask(tmp_path, "no-such-program", modules=("tool",)).spec.command == ("no-such-program",)
    for brings in ({"venv": "env"}, {"python": "python3"}, {"env": {"PYTHONPATH": "src"}}):
        assert ask(tmp_path, "-m", "no_such_package", **brings).spec.command == ("-m", "no_such_package")
    assert ask(tmp_path, "/opt/app/x.py", container="image.sif").spec.command == ("/opt/app/x.py",)


def test_nothing_to_run_is_said(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text("[job]\n")
    with pytest.raises(RankupError, match="nothing to run"):
        ask(tmp_path, file=file)


def test_a_large_node_without_gpus_is_not_measured_by_the_one_with_gpus(tmp_path):
    assert ask(tmp_path, site="olivia", account="a", mem="2T").spec.mem == 2 * 1024 * 1024


@pytest.mark.parametrize("array", ["5-1", "1-5:0", "0-99999999999"])
def test_an_array_of_nothing_or_of_too_much_is_refused(tmp_path, array):
    with pytest.raises(RankupError) as caught:
        ask(tmp_path, array=array)
    assert (caught.value.code, caught.value.exit_code) == ("bad-array", 2)


@pytest.mark.parametrize("flags", [{"env": {"RUN": "x"}}, {"env": {"JOB": "x"}}])
def test_the_scripts_own_variables_are_not_the_jobs(tmp_path, flags):
    with pytest.raises(RankupError, match="own script"):
        ask(tmp_path, **flags)


def test_conda_and_a_container_are_two_pythons(tmp_path):
    with pytest.raises(RankupError, match="not conda's"):
        ask(tmp_path, container="/images/a.sif", conda="env")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(RankupError, match="not UTF-8"):
        ask(tmp_path, "train.py", "caf\udce9")


def test_more_nodes_than_a_queue_has_are_an_error_before_the_queue(tmp_path):
    (tmp_path / "lab.toml").write_text('scheduler = "slurm"\n[queue_nodes]\ngpu = 16\n')
    lab = {"site": "lab", "environ": {"RANKUP_SITES": str(tmp_path)}}
    with pytest.raises(RankupError, match="the job needs 99 nodes, and gpu of lab has 16") as caught:
        ask(tmp_path, **lab, nodes=99, queue="gpu")
    assert caught.value.code == "impossible-size"
    assert ask(tmp_path, **lab, nodes=16, queue="gpu").spec.nodes == 16
    for elsewhere in ({}, {"queue": "other"}, {"queue": "gpu,other"}):  # nobody knows how many are there
        assert ask(tmp_path, **lab, nodes=99, **elsewhere).spec.nodes == 99


def test_a_time_longer_than_a_queue_allows_is_an_error_before_the_queue(tmp_path):
    (tmp_path / "lab.toml").write_text('scheduler = "slurm"\n[queue_time]\ngpu = "1d"\n')
    lab = {"site": "lab", "environ": {"RANKUP_SITES": str(tmp_path)}}
    with pytest.raises(RankupError, match="--time 900:00:00, and gpu of lab allows 1d") as caught:
        ask(tmp_path, **lab, time="900h", queue="gpu")
    assert caught.value.code == "impossible-time"
    assert ask(tmp_path, **lab, time="24h", queue="gpu").spec.time == 24 * 3600
    for elsewhere in ({}, {"queue": "other"}):
        assert ask(tmp_path, **lab, time="900h", **elsewhere).spec.time == 900 * 3600


def test_the_longest_time_of_a_queue_has_a_unit(tmp_path):
    (tmp_path / "lab.toml").write_text('scheduler = "slurm"\n[queue_time]\ngpu = "24"\n')
    with pytest.raises(RankupError, match="'24' is not a duration"):
        ask(tmp_path, site="lab", environ={"RANKUP_SITES": str(tmp_path)})


@pytest.mark.parametrize("key", ["pre", "pre_modules"])
def test_lines_that_bash_cannot_read_are_an_error_before_the_queue(tmp_path, key):
    with pytest.raises(RankupError, match="is not valid bash") as caught:
        ask(tmp_path, site="slurm", **{key: ("export A='b",)})
    assert caught.value.code == "bad-bash"
    several = ('if [ -n "$A" ]; then', "  echo 'it is'", "fi")
    assert getattr(ask(tmp_path, site="slurm", **{key: several}).spec, key) == several
