"""job.toml: what it may say, what it refuses, and that it gives the same job again."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from asking import ask
from rankup.errors import RankupError
from rankup.resolve.job_toml import job_toml, read_job_file
from rankup.resolve.resolved import Resolved
from rankup.spec.field_types import OF_THE_SCRIPT, BashLines
from rankup.spec.jobspec import JobSpec

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
lines = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in OF_THE_SCRIPT
)


def again(folder: Path, resolved: Resolved, **changes: object) -> Resolved:
    """The job that the job.toml of ``resolved`` gives, with ``changes`` as flags, asked for from somewhere else."""
    file = folder / "job.toml"
    file.write_text(job_toml(resolved))
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    return ask(elsewhere, file=file, site=None, environ={"TOKEN": "value"}, **changes)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    arguments=st.lists(texts),
    env=st.dictionaries(names, texts, max_size=3),
    pre=st.lists(lines.map(lambda text: f": {shlex.quote(text)}"), max_size=3),  # bash reads any of them
    time=st.integers(1, 10**7),
    mem=st.integers(1, 768 * 1024),
)
def test_a_written_job_is_the_same_job_again(arguments, env, pre, time, mem):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        resolved = ask(
            folder, "train.py", *arguments, site="olivia", account="a", gpus_per_node=2,
            pre=tuple(pre), env=env, time=time, mem=mem,
        )  # fmt: skip
        assert again(folder, resolved).spec == resolved.spec


def test_memory_that_was_refused_stays_refused(tmp_path):
    resolved = ask(tmp_path, site="olivia", account="a", gpus_per_node=1, mem="")
    assert again(tmp_path, resolved).spec.mem is None


def test_a_flag_changes_what_follows_from_it_and_keeps_what_was_asked(tmp_path):
    first = ask(tmp_path, site="cyclone", gpus_per_node=4, time="3h")
    second = again(tmp_path, first, gpus_per_node=0)
    assert (second.spec.nproc_per_node, second.spec.queue, second.spec.cpus_per_task) == (1, "cpu", 10)
    assert (second.spec.time, second.site.name, second.spec.folder) == (3 * 3600, "cyclone", tmp_path)


def test_what_followed_still_does_after_a_second_writing(tmp_path):
    first = ask(tmp_path, site="cyclone", gpus_per_node=4)
    assert again(tmp_path, again(tmp_path, first), gpus_per_node=2).spec.nproc_per_node == 2


def test_values_of_secrets_are_not_in_it(tmp_path):
    resolved = ask(tmp_path, secrets=("TOKEN",), environ={"TOKEN": "hunter2"})
    assert "hunter2" not in job_toml(resolved)
    assert again(tmp_path, resolved).spec.secrets == ("TOKEN",)


def test_script_and_args_are_a_command_and_numbers_need_no_quotes(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text('[job]\nscript = "train.py"\nargs = ["--lr", 0.5, 3]\n[job.env]\nOMP_NUM_THREADS = 8\n')
    job = read_job_file(file)["job"]
    assert job == {"command": ["train.py", "--lr", "0.5", "3"], "env": {"OMP_NUM_THREADS": "8"}}


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("[job]\nnodes = \n", "bad-toml", "line 2"),
        ("[job]\ngpus-per-nod = 2", "unknown-key", "did you mean 'gpus_per_node'"),
        ("[jobs]\nnodes = 2", "unknown-key", "did you mean 'job'"),
        ("job = 2", "bad-job-file", "[job]"),
        ("[job]\ntime = 90", "bad-time", '"90m"'),
        ("[job]\nmem = 32", "bad-mem", '"32G"'),
        ('[job]\nnodes = "2"', "bad-nodes", "nodes = 2"),
        ("[job]\nnodes = true", "bad-nodes", "True"),
        ('[job]\nmodules = "a"', "bad-modules", "modules = ["),
        ("[job]\nenv = 1", "bad-env", "NAME"),
        ("[job.env]\nA = [1]", "bad-env", "env.A"),
        ("[job]\nfolder = 1", "bad-folder", "folder"),
        ("[job]\nvenv = 1", "bad-venv", "venv"),
        ("[job]\nargs = 1", "bad-args", "args"),
        ("[site]\nname = 1", "bad-site", "must be text, got 1"),
        ('[site]\nname = "x"', "unknown-site", "'x'"),
    ],
)
def test_a_wrong_file_is_one_sentence_with_the_file_and_the_key(tmp_path, text, code, words):
    file = tmp_path / "job.toml"
    file.write_text(text)
    with pytest.raises(RankupError) as caught:
        ask(tmp_path, "train.py", file=file, site=None)
    assert caught.value.code == code
    assert words in str(caught.value)
    assert str(file) in str(caught.value) or code == "unknown-site"


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(RankupError, match="cannot read the job file"):
        read_job_file(tmp_path / "none.toml")


@pytest.mark.parametrize("wrong", ["script = 1", "command = []", 'command = ["a", 1]'])
def test_a_wrong_command_is_refused(tmp_path, wrong):
    file = tmp_path / "job.toml"
    file.write_text(f"[job]\n{wrong}\n")
    with pytest.raises(RankupError, match="command") as caught:
        ask(tmp_path, file=file)
    assert caught.value.code == "bad-command"


@pytest.mark.parametrize(
    "lines", ['script = "a.py"\ncommand = ["b.py"]', 'args = [1]\ncommand = ["b.py"]', "args = [1]"]
)
def test_a_file_that_says_twice_what_runs_is_refused(tmp_path, lines):
    (tmp_path / "job.toml").write_text(f"[job]\n{lines}\n")
    with pytest.raises(RankupError) as caught:
        ask(tmp_path, file=tmp_path / "job.toml")
    assert "two-commands" in [finding.code for finding in caught.value.findings]


@pytest.mark.parametrize("lines", ["launchers = []", "[queue_nodes]\ngpu = -1", "[node]\ngpus = -2"])
def test_a_profile_with_impossible_sizes_is_refused(tmp_path, lines):
    (tmp_path / "lab.toml").write_text(f'scheduler = "slurm"\n{lines}\n')
    with pytest.raises(RankupError) as caught:
        ask(tmp_path, "train.py", site="lab", environ={"RANKUP_SITES": str(tmp_path)})
    assert "bad-profile" in [finding.code for finding in caught.value.findings]


def test_what_is_staged_is_a_table_of_its_own_and_stays_the_same(tmp_path):
    file = tmp_path / "staged.toml"
    file.write_text('[job]\nscript = "train.py"\n[stage]\ndata = "sets/a b.tar"\nback = ["out/*"]\n')
    resolved = ask(tmp_path, file=file, site="slurm")
    assert resolved.spec.stage == {"data": f"{tmp_path}/sets/a b.tar"}
    assert resolved.spec.back == ("out/*",)
    assert again(tmp_path, resolved).spec == resolved.spec


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("data = 3", "bad-stage", "stage.data"),
        ('"a/b" = "x"', "bad-stage", "'a/b' cannot name data"),
        ('data = ""', "bad-stage", "data names no file or folder"),
        ('back = "out"', "bad-back", "invalid value for back: 'out'"),
        ('back = ["../out"]', "bad-back", "'../out' has to be a path inside the staged folder"),
    ],
)
def test_what_cannot_be_staged_is_refused(tmp_path, line, code, says):
    file = tmp_path / "staged.toml"
    file.write_text(f'[job]\nscript = "train.py"\n[stage]\n{line}\n')
    with pytest.raises(RankupError) as refused:
        ask(tmp_path, file=file, site="slurm")
    assert refused.value.code == code and says in str(refused.value)


@pytest.mark.parametrize(
    "line", ["END=100", "export A=1 RUN=exp7", "cd x && HOSTS=a # own", "if true; then RUN=$(date); fi"]
)
@pytest.mark.parametrize("key", ["pre", "pre_modules"])
def test_a_line_of_the_users_does_not_assign_what_the_script_needs(key, line):
    with pytest.raises(ValueError, match="is a variable of the job's own script"):
        JobSpec(command=("train.py",), **{key: (line,)})


@pytest.mark.parametrize(
    "line", ["RUN=exp7 python prepare.py", "echo END=1", "export EXP_RUN=1 B=$(date)", "X='RUN=2'"]
)
def test_a_line_that_only_looks_so_is_taken(line):
    assert TypeAdapter(BashLines).validate_python((line,)) == (line,)
