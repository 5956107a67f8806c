"""``rankup`` without a command says what to do in this folder; options after a script are named."""

from __future__ import annotations

import pytest

from rankup.cli import app


def call(capfd, *args) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        app.main([str(arg) for arg in args])
    return (end.value.code or 0, *capfd.readouterr())


def script(folder, name, text):
    (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        (
            {"job.sh": "#!/bin/bash\n#SBATCH --nodes=2\nsrun python x.py\n"},
            ["check job.sh", "rehearse job.sh"],
        ),
        (
            {"train.py": "import torch\nloss.backward()\n", "notes.txt": "#SBATCH "},
            ["check train.py", "verify train.py", "new train.py"],  # on several devices: a model each
        ),
        (
            {"train.py": "import torch\ntorch.distributed.init_process_group()\nloss.backward()\n"},
            ["check train.py", "run --nproc-per-node auto train.py", "verify train.py", "new train.py"],
        ),
        (
            {"train.py": "import torch, rankup\nfor x in run.steps(data): pass\n"},
            ["run --nproc-per-node auto train.py", "verify train.py", "new train.py"],
        ),
        ({"job.toml": "[job]\nscript = 'x.py'\n"}, ["render job.toml", "submit job.toml"]),
        ({"util.py": "import torch\n", "data.csv": "1,2\n"}, []),
    ],
)
def test_the_next_command_for_what_is_there(tmp_path, monkeypatch, capfd, files, commands):
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        script(tmp_path, name, text)
    code, out, _ = call(capfd)
    _, _, here = out.partition("\nHere:\n")
    assert code == 2
    assert [line.split("  ")[1] for line in here.splitlines()] == [f"rankup {each}" for each in commands]


def test_a_failed_run_comes_first(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "train" / "20260101-000000-abcd"
    (run / "snapshots" / "step-5").mkdir(parents=True)
    (run / "job.toml").touch()
    (run / "outcome").write_text("failed\n")
    lines = call(capfd)[1].partition("\nHere:\n")[2].splitlines()
    assert lines[0].split("  ")[1] == "rankup explain runs/train/20260101-000000-abcd"
    assert lines[1].split("  ")[1] == "rankup run --resume runs/train/20260101-000000-abcd"


def test_help_of_a_command(capfd):
    assert call(capfd, "help", "explain")[:2] == call(capfd, "explain", "--help")[:2]


def test_an_option_of_rankup_after_the_script_is_named(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    script(tmp_path, "train.py", "print('done')\n")
    said = call(capfd, "run", "train.py", "--nproc-per-node", "2")[2]
    assert (
        "--nproc-per-node comes after train.py, so the script gets it, and its text does not mention it"
        in said
    )
    script(tmp_path, "own.py", "'--nproc_per_node is an option of this script'\n")
    assert "comes after" not in call(capfd, "run", "own.py", "--nproc-per-node", "2")[2]
    options = ("--site", "slurm", "--time", "1h", "--ignore", "node-local-path")
    assert "[option-after-script]" in call(capfd, "render", *options, "train.py", "--nodes", "2")[2]


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        (("scale",), "rankup.cli.commands.scale._run"),
        (("scale", "--site", "slurm", "--time", "1h"), "rankup.cli.commands.scale._run"),
        (("verify",), "rankup.cli.commands.verify.verify"),
    ],
)
def test_before_a_study_and_a_proof_it_is_named_too(tmp_path, monkeypatch, capfd, command, starts):
    def start(*_args, **_more):
        raise SystemExit(3)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(starts, start)
    script(tmp_path, "train.py", "print('done')\n")
    code, _, said = call(capfd, *command, "train.py", "--nproc-per-node", "1,2")
    assert (code, "--nproc-per-node comes after train.py" in said) == (3, True)


def test_in_a_folder_that_is_gone_it_is_the_help_alone(tmp_path, monkeypatch, capfd):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    code, out, err = call(capfd)
    assert (code, err) == (2, "") and "Here:" not in out
    monkeypatch.chdir(tmp_path)
