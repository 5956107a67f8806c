"""``rankup check`` and ``rankup rules`` as a user types them."""

from __future__ import annotations

import json
import re

import pytest

from commands import calling
from rankup.cli.app import main
from rankup.core.shell import Completed

HEAD_ONLY = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4 --cpus-per-task=32
torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=node1:$((10000+SLURM_JOB_ID%20000)) train.py
"""
RIGHT = HEAD_ONLY.replace("torchrun", "srun torchrun")
LITERAL = RIGHT.replace("--nnodes=2", "--nnodes=3")  # RK107, whose fix is safe
PROGRAM = (
    "import torch.distributed as dist\n\ndist.init_process_group('gloo')\ndist.destroy_process_group()\n"
)
PAGE = f"# Two nodes\n\nSave this as `job.sh`:\n\n```\n{HEAD_ONLY}```\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


check = calling("check")


def test_a_mistake_is_shown_with_its_line_and_the_exit_code_is_1(folder, capsys):
    (folder / "job.sh").write_text(HEAD_ONLY)
    code, out, _ = check(capsys, "job.sh")
    lines = out.splitlines()
    assert code == 1
    assert lines[0].startswith("error: ") and lines[0].endswith("[RK101 no-srun]")
    assert lines[1] == "  where: job.sh:5:1"
    assert lines[2] == f"      5 | {HEAD_ONLY.splitlines()[4]}"
    assert lines[3].lstrip(" |").startswith("^^^") and lines[3].index("^") == lines[2].index("torchrun")
    assert [line[:9] for line in lines[4:6]] == ["  why:   ", "  hint:  "]
    assert lines[-2].startswith("1 file: 1 error (1 fixable with --unsafe-fixes)")
    assert lines[-1] == "checked: job.sh · not followed: train.py (not found at train.py)"


def test_errors_are_printed_before_the_notes_of_earlier_lines(folder, capsys):
    (folder / "job.sh").write_text(
        HEAD_ONLY.replace("#SBATCH --nodes", "#SBATCH --output=logs/%j\n#SBATCH --nodes")
    )
    _, out, _ = check(capsys, "job.sh")
    found = [line.partition(":")[0] for line in out.splitlines() if re.match("error:|note:", line)]
    assert found == ["error", "note"]


def test_a_right_script_is_silent_and_the_exit_code_is_0(folder, capsys):
    (folder / "job.sh").write_text(RIGHT)
    (folder / "train.py").write_text(PROGRAM)
    assert check(capsys, "job.sh") == (0, "2 files: nothing found\n", "")


def test_a_job_whose_program_was_not_read_is_never_without_a_word_in_any_format(folder, capsys):
    (folder / "job.sh").write_text(RIGHT)
    read = "checked: job.sh · not followed: train.py (not found at train.py)"
    assert check(capsys, "job.sh") == (0, f"1 file: no finding in what was read\n{read}\n", "")
    assert check(capsys, "--strict", "job.sh")[0] == 1
    answer = json.loads(check(capsys, "--json", "job.sh")[1])
    assert answer["checked"] == ["job.sh"]
    assert answer["not_followed"] == [
        {"name": "train.py", "reason": "not found at train.py", "path": "job.sh", "line": 5}
    ]
    (run,) = json.loads(check(capsys, "--format", "sarif", "job.sh")[1])["runs"]
    (said,) = run["invocations"][0]["toolExecutionNotifications"]
    assert said["message"]["text"] == "train.py was not checked: not found at train.py"
    assert said["locations"][0]["physicalLocation"]["region"]["startLine"] == 5
    annotation = check(capsys, "--format", "github", "job.sh")[1]
    assert annotation.startswith("::notice file=job.sh,line=5,title=not followed::train.py was not checked")


def test_a_command_that_nobody_can_read_is_named_in_every_format(folder, capsys):
    (folder / "job.sh").write_text("#!/bin/bash\n#SBATCH --nodes=1\nsrun train-model --epochs 3\n")
    said = "train-model (a command of the environment)"
    assert check(capsys, "job.sh")[1].splitlines()[-1] == f"checked: job.sh · not followed: {said}"
    assert check(capsys, "--strict", "job.sh")[0] == 1
    for form in ("json", "sarif", "github"):
        out = check(capsys, "--format", form, "job.sh")[1]
        assert "train-model" in out and "a command of the environment" in out


LOOP = """\
import torch

model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    model(torch.randn(4, 2)).sum().backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        (LOOP, True),
        (LOOP.replace("import torch\n", "import torch\nimport rankup\nrun = rankup.init()\n"), False),
        (
            LOOP.replace("import torch\n", 'import torch\ntorch.distributed.init_process_group("gloo")\n'),
            False,
        ),
        (LOOP.replace("import torch\n", "import torch\nfrom helpers import prepare\n"), False),
        (LOOP.replace(".backward()", ""), False),
    ],
    ids=["a loop", "rankup", "torch", "a part that nobody has read", "no training"],
)
def test_a_program_that_trains_in_one_process_is_named(folder, capsys, text: str, alone: bool):
    (folder / "train.py").write_text(text)
    said = "trains in one process: train.py (of several, each would train a model of its own"
    assert (said in check(capsys, "train.py")[1]) == alone
    answer = json.loads(check(capsys, "--json", "train.py")[1])
    assert answer["one_process"] == (["train.py"] if alone else [])
    said = "train.py trains in one process"
    annotation = f"::notice file=train.py,line=1,title=one process::{said}"
    assert (annotation in check(capsys, "--format", "github", "train.py")[1]) == alone
    (run,) = json.loads(check(capsys, "--format", "sarif", "train.py")[1])["runs"]
    notices = [one["message"]["text"] for one in run["invocations"][0]["toolExecutionNotifications"]]
    assert [one.startswith(said) for one in notices] == ([True] if alone else [])


PAGES = "https://github.com/rankup/rankup/blob/main/docs/reference/rules"


def test_json_has_place_rule_fix_and_page(folder, capsys):
    (folder / "job.sh").write_text(HEAD_ONLY)
    code, out, _ = check(capsys, "--json", "job.sh")
    answer = json.loads(out)
    (finding,) = answer["findings"]
    assert (code, answer["passed"], answer["files"]) == (1, False, 1)
    expected = {
        "code": "RK101",
        "name": "no-srun",
        "page": f"{PAGES}/RK101.md",
        "severity": "error",
        "confidence": "sure",
        "path": "job.sh",
        "line": 5,
        "column": 1,
        "automatic_fix": "unsafe",
    }
    assert expected.items() <= finding.items()


def test_github_gets_one_annotation_for_each_finding(folder, capsys):
    (folder / "job.sh").write_text(HEAD_ONLY)
    _, out, _ = check(capsys, "--format", "github", "job.sh")
    line, _ = out.splitlines()
    assert line.startswith("::error file=job.sh,line=5,col=1,endLine=5,endColumn=")
    assert ",title=RK101 no-srun::" in line


def test_sarif_has_what_its_schema_requires(folder, capsys):
    (folder / "my job.sh").write_text(HEAD_ONLY)
    _, out, _ = check(capsys, "--format", "sarif", ".")
    report = json.loads(out)
    (run,) = report["runs"]
    (result,) = run["results"]
    assert report["version"] == "2.1.0" and run["tool"]["driver"]["name"] == "rankup"
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (
        (rule["id"], rule["helpUri"]) == (result["ruleId"], f"{PAGES}/RK101.md") == ("RK101", rule["helpUri"])
    )
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "my%20job.sh"
    assert place["region"]["startLine"] == 5
    assert result["level"] == "error" and result["message"]["text"]


def test_all_formats_carry_the_same_findings_also_those_that_are_not_a_rules(folder, capsys):
    (folder / "job.sh").write_text(HEAD_ONLY + "# rankup: allow RK999\necho\n")
    (folder / "data.csv").write_text("1,2\n")
    (folder / "job.toml").write_text('[job]\ncommand = ["trian.py"]\n')
    formats = ("json", "github", "sarif")
    out = {form: check(capsys, "--format", form, "job.sh", "data.csv", "job.toml")[1] for form in formats}
    found = [(one["code"], one["severity"]) for one in json.loads(out["json"])["findings"]]
    annotation = re.compile(r"^::(\w+) file=([^,]+),line=(\d+),.*,title=([\w-]+)[ :]", re.M)
    annotations = [
        (code, severity.replace("notice", "note"), path, int(line))
        for severity, path, line, code in annotation.findall(out["github"])
    ]
    results = []
    for one in json.loads(out["sarif"])["runs"][0]["results"]:
        place = one["locations"][0]["physicalLocation"]
        line = place["region"]["startLine"]
        results.append((one["ruleId"], one["level"], place["artifactLocation"]["uri"], line))
    assert annotations == results and [one[:2] for one in results] == found
    assert {
        ("RK101", "error", "job.sh", 5),
        ("unknown-rule", "warning", "job.sh", 6),
        ("nothing-to-check", "warning", "data.csv", 1),
        ("script-not-found", "error", "job.toml", 1),
    } <= {*results}


@pytest.mark.parametrize(
    ("name", "severity", "code"),
    [("job.sh", "error", 1), ("job.toml", "error", 1), ("train.py", "warning", 0), ("page.md", "error", 1)],
)
@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_said_to_be_empty_and_not_to_be_right(folder, capsys, name, severity, code, text):
    (folder / name).write_text(text)
    ended, out, _ = check(capsys, name)
    assert ended == code and "nothing found" not in out
    assert out.startswith(f"{severity}: this file is empty [nothing-to-check]\n  where: {name}\n")


def test_a_page_is_checked_at_its_own_lines(folder, capsys):
    (folder / "tutorial.md").write_text(PAGE)
    code, out, _ = check(capsys, "tutorial.md")
    assert code == 1
    assert f"where: tutorial.md:{PAGE.splitlines().index(HEAD_ONLY.splitlines()[4]) + 1}:1" in out


def test_fix_repairs_what_is_safe_keeps_mode_and_line_ends_and_leaves_the_rest(folder, capsys):
    job = folder / "job.sh"
    job.write_text(LITERAL)
    job.chmod(0o750)
    (folder / "train.py").write_text(PROGRAM)
    code, out, _ = check(capsys, "--fix", "job.sh")
    assert (code, out) == (0, "2 files: nothing found; 1 file fixed\n")
    assert "--nnodes=$SLURM_NNODES" in job.read_text()
    assert job.stat().st_mode & 0o777 == 0o750
    job.write_text(HEAD_ONLY)
    assert check(capsys, "--fix", "job.sh")[0] == 1
    assert job.read_text() == HEAD_ONLY
    assert check(capsys, "--unsafe-fixes", "--select", "RK101", "job.sh")[0] == 0
    assert "srun" in job.read_text()


@pytest.mark.parametrize("named", [".", "slurm-9.out"])
def test_a_log_is_never_fixed(folder, capsys, named):
    (folder / "slurm-9.out").write_text(LITERAL)
    assert "fixed" not in check(capsys, "--unsafe-fixes", named)[1]
    assert (folder / "slurm-9.out").read_text() == LITERAL


QUOTES = '#!/bin/bash\n"\n#SBATCH --nodes=2\nsrun python train.py "a b"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (QUOTES + '"\n', "was not applied: bash -n refuses the file with it"),
        (
            '#!/bin/bash\n""""\n#SBATCH -N 2\n"""\nsrun python train.py\n',
            "was not applied: bash -n refuses the file [fix-refused]",
        ),
    ],
    ids=["the fix breaks it", "it is broken"],
)
def test_a_fix_that_leaves_no_script_is_refused_and_said(folder, capsys, text, said):
    (folder / "job.sh").write_text(text)
    (folder / "train.py").write_text(PROGRAM)
    out = check(capsys, "--unsafe-fixes", "job.sh")[1]
    assert said in out and "fixable" not in out
    assert (folder / "job.sh").read_text() == text
    assert said in check(capsys, "--diff", "job.sh")[2]
    assert "fix-refused" in check(capsys, "--fix", "--format", "sarif", "job.sh")[1]


def test_a_fix_that_mends_a_broken_script_is_applied(folder, capsys):
    (folder / "job.sh").write_text(QUOTES)
    assert "1 file fixed" in check(capsys, "--fix", "job.sh")[1]


def test_diff_writes_nothing_and_patch_takes_it(folder, capsys):
    (folder / "job.sh").write_text(LITERAL)
    code, out, _ = check(capsys, "--diff", "job.sh")
    assert code == 1
    assert (folder / "job.sh").read_text() == LITERAL
    assert [line for line in out.splitlines() if line[0] in "+-"][:2] == ["--- a/job.sh", "+++ b/job.sh"]


def test_a_diff_of_nothing_says_why(folder, capsys):
    (folder / "train.py").write_text(PROGRAM)
    (folder / "job.sh").write_text(HEAD_ONLY)
    code, out, said = check(capsys, "--diff", "job.sh")
    assert (code, out) == (0, "")
    assert said.endswith("none has a safe fix; 1 can be fixed with --unsafe-fixes\n")
    (folder / "job.sh").write_text(RIGHT)
    assert "nothing found" in check(capsys, "--diff", "job.sh")[2]


def test_a_comment_allows_one_place(folder, capsys):
    allowed = HEAD_ONLY.replace("\ntorchrun", "\n# rankup: allow RK101 (others start by hand)\ntorchrun")
    (folder / "job.sh").write_text(allowed)
    (folder / "train.py").write_text(PROGRAM)
    assert check(capsys, "job.sh")[:2] == (0, "2 files: nothing found\n")
    (folder / "job.sh").write_text(HEAD_ONLY.replace("train.py", "train.py  # rankup: allow no-srun"))
    assert check(capsys, "job.sh")[0] == 0


def test_a_comment_that_allows_nothing_or_an_unknown_rule_is_reported(folder, capsys):
    (folder / "job.sh").write_text(RIGHT + "# rankup: allow RK101\necho done\n# rankup: allow RK999\necho\n")
    code, out, _ = check(capsys, "job.sh")
    assert code == 0
    assert "[unused-allow]" in out and "'RK999', which is not a rule" in out


def test_text_of_a_program_that_looks_like_a_comment_allows_nothing(folder, capsys):
    (folder / "a.py").write_text('import torch\ntext = "# rankup: allow RK999"\n')
    assert "RK999" not in check(capsys, "a.py")[1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rankup.toml", '[check]\nignore = ["RK1"]\n'),
        ("pyproject.toml", '[tool.rankup.check]\nignore = ["no-srun"]\n'),
        ("rankup.toml", '[check]\nselect = ["RK2"]\n'),
    ],
)
def test_a_project_keeps_its_choice_in_a_file(folder, capsys, name, text):
    (folder / name).write_text(text)
    (folder / "jobs").mkdir()
    (folder / "jobs" / "job.sh").write_text(HEAD_ONLY)
    assert check(capsys, "jobs/job.sh")[0] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[check]\nselct = []\n", "unknown setting 'selct'; did you mean 'select'?"),
        ('[check]\nignore = ["RK9"]\n', "unknown rule 'RK9'"),
        ("[check]\nignore = 3\n", "ignore must be a list of texts"),
        ("[check\n", "is not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_one_error(folder, capsys, text, message):
    (folder / "rankup.toml").write_text(text)
    (folder / "job.sh").write_text(RIGHT)
    code, _, err = check(capsys, "job.sh")
    assert code == 2
    assert message in err and "rankup.toml" in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.sh"], "file or folder not found: 'none.sh'"),
        (["--select", "RK10l", "job.sh"], "unknown rule 'RK10l'; did you mean 'RK"),
        (["--format", "xml", "job.sh"], "unknown format 'xml'"),
        (["--site", "olivier", "job.sh"], "did you mean 'olivia'?"),
    ],
)
def test_wrong_usage_is_one_error_and_exit_code_2(folder, capsys, args, message):
    (folder / "job.sh").write_text(RIGHT)
    code, _, err = check(capsys, *args)
    assert code == 2
    assert message in err


def test_a_file_of_another_kind_is_a_warning(folder, capsys):
    (folder / "data.csv").write_text("1,2\n")
    code, out, _ = check(capsys, "data.csv")
    assert code == 0 and "this file is not a job script" in out
    assert check(capsys, "--strict", "data.csv")[0] == 1


def test_a_job_file_is_judged_as_submit_would(folder, capsys):
    (folder / "job.toml").write_text('[job]\ncommand = ["trian.py"]\nsite = "olivia"\n')
    (folder / "train.py").write_text("")
    code, out, _ = check(capsys, "job.toml")
    assert code == 1
    assert "'trian.py'; did you mean 'train.py'?" in out


def test_a_rule_is_explained_with_its_examples(capsys):
    with pytest.raises(SystemExit):
        main(["rules", "no-srun"])
    out = capsys.readouterr().out
    assert out.startswith("RK101 no-srun (error, sure;")
    assert all(head in out for head in ("Why: ", "What to do: ", "Fires on:", "Does not fire on:"))


def test_an_unknown_rule_is_an_error_with_the_nearest_one(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["rules", "no-srum"])
    assert ended.value.code == 2
    assert "did you mean 'no-srun'?" in capsys.readouterr().err


def test_all_rules_are_listed(capsys):
    with pytest.raises(SystemExit):
        main(["rules", "--json"])
    rules = json.loads(capsys.readouterr().out)
    assert rules[0]["code"] == "RK101" and all(rule["fires"] and rule["silent"] for rule in rules)


def test_a_fix_keeps_the_line_ends_of_a_program_and_repairs_those_of_a_job_script(folder, capsys):
    (folder / "job.sh").write_bytes(RIGHT.replace("\n", "\r\n").encode())
    assert "[RK133 crlf]" in check(capsys, "job.sh")[1]
    assert check(capsys, "--fix", "job.sh")[0] == 0
    assert (folder / "job.sh").read_bytes() == RIGHT.encode()
    program = (
        "import os\r\nimport torch\r\nimport torch.distributed as dist\r\n\r\ndist.init_process_group('nccl')\r\n"
        "torch.cuda.set_device(int(os.environ['RANK']))\r\n"
    )
    (folder / "train.py").write_bytes(program.encode())
    check(capsys, "--fix", "--select", "RK201", "train.py")
    fixed = (folder / "train.py").read_bytes()
    assert fixed != program.encode() and fixed.count(b"\r\n") == fixed.count(b"\n")


def test_submit_is_stopped_by_an_error_in_the_program_and_goes_on_with_force(folder, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    (folder / "train.py").write_text(
        "import torch.distributed as dist\ndist.init_process_group()\n"
        "if dist.get_rank() == 0:\n    dist.barrier()\n"
    )
    submit = ["submit", "--site", "slurm", "--time", "1h", "--nproc-per-node", "2", "--dry-run"]
    with pytest.raises(SystemExit) as ended:
        main([*submit, "train.py"])
    assert ended.value.code == 1
    assert (
        "[RK207]" in (err := capsys.readouterr().err)
        and "--ignore RK207 leaves this out, --force submits" in err
    )
    for more in (["--force"], ["--ignore", "RK207"]):
        with pytest.raises(SystemExit) as ended:
            main([*submit, *more, "train.py"])
        assert not ended.value.code


def test_the_program_of_a_job_file_is_judged_too(folder, capsys):
    (folder / "job.toml").write_text('[job]\ncommand = ["train.py"]\nnproc_per_node = 2\n')
    (folder / "train.py").write_text(
        "import torch.distributed as dist\ndist.init_process_group()\n"
        "if dist.get_rank() == 0:\n    dist.barrier()\n"
    )
    code, out, _ = check(capsys, "--site", "slurm", "job.toml")
    assert code == 1 and "[RK207]" in out and "train.py:4" in out


def test_a_comment_allows_no_other_line_and_no_other_rule(folder, capsys):
    torchrun = HEAD_ONLY.splitlines()[4]
    for allowed in ("# rankup: allow RK101\necho start\n" + torchrun, torchrun + "  # rankup: allow RK102"):
        (folder / "job.sh").write_text(HEAD_ONLY.replace(torchrun, allowed))
        assert check(capsys, "job.sh")[0] == 1


def test_a_notebook_is_read_and_its_places_name_cells(folder, capsys):
    cell = {"cell_type": "code", "source": ["%%writefile job.sh\n", *HEAD_ONLY.splitlines(keepends=True)]}
    (folder / "lesson.ipynb").write_text(json.dumps({"cells": [cell]}, indent=1))
    line = next(at for at, text in enumerate(cell["source"], 1) if text.startswith("torchrun"))
    code, out, _ = check(capsys, "lesson.ipynb")
    assert code == 1 and f"lesson.ipynb:cell 1:{line}:1" in out and f"\n{line:>7} | torchrun" in out
    code, out, _ = check(capsys, "lesson.ipynb", "--json")
    (found,) = [one for one in json.loads(out)["findings"] if one["code"] == "RK101"]
    assert (found["cell"], found["cell_line"]) == (1, line)
    assert "torchrun" in (folder / "lesson.ipynb").read_text().splitlines()[found["line"] - 1]


def test_explain_files_says_what_each_file_was_taken_for(folder, capsys):
    (folder / "job.sh").write_text(RIGHT)
    (folder / "run.log").write_text("#SBATCH --nodes=2\nepoch 1\n")
    code, out, _ = check(capsys, "--explain-files", ".")
    assert code == 0
    assert out.splitlines() == [
        "job.sh: job (its first line names a shell)",
        "run.log: left out (its name is that of a log)",
    ]
    _, out, _ = check(capsys, "--explain-files", "--json", ".")
    assert json.loads(out)["run.log"] == {"kind": "left out", "why": "its name is that of a log"}
    _, out, _ = check(capsys, "--json", ".")
    answer = json.loads(out)
    assert answer["files"] == 1 and answer["checked"] == ["job.sh"]  # the log is not counted as checked


def test_a_fix_that_bash_would_refuse_is_not_written(folder, capsys, monkeypatch):
    (folder / "job.sh").write_text(LITERAL)
    refuse = Completed(2, "", "syntax error")
    accept = Completed(0, "", "")
    monkeypatch.setattr("rankup.check.paths.run", lambda _, stdin: accept if stdin == LITERAL else refuse)
    check(capsys, "--fix", "job.sh")
    assert (folder / "job.sh").read_text() == LITERAL


def test_a_fix_keeps_the_line_ends_of_lines_that_it_does_not_edit(folder, capsys):
    mixed = LITERAL.replace("#SBATCH --nodes=2\n", "#SBATCH --nodes=2\r\n")
    (folder / "job.sh").write_bytes(mixed.encode())
    check(capsys, "--fix", "--select", "RK107", "job.sh")
    assert (folder / "job.sh").read_bytes() == mixed.replace("--nnodes=3", "--nnodes=$SLURM_NNODES").encode()
