"""A word to fill in is a word that nobody knows, and nothing more."""

from __future__ import annotations

import pytest

from rankup.check.check import diagnostics, read_subjects
from rankup.check.document import Document
from rankup.check.facts.job.reader import read_job
from rankup.check.pages.joining import page_documents

JOB = """\
#!/bin/bash
#SBATCH --account={account}
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
cd {folder}
torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HOSTNAME:29500 train.py
"""


def codes(jobs, programs=()):
    return {d.rule.code for d in diagnostics(read_subjects(jobs, programs, lambda document, name: None))}


@pytest.mark.parametrize(
    "word", ["<project>", "<your-username>", "<path to your data>", "{{ account }}", "YOUR_X"]
)
def test_a_script_with_a_word_to_fill_in_has_the_same_errors(word):
    text = JOB.format(account=word, folder=f"/scratch/{word}/run")
    assert "RK101" in codes([Document("job.sh", text)])
    jobs, programs = page_documents(
        Document("page.md", f"# Two nodes\n\n```bash\n{text}```\n", name="page.md")
    )
    assert "RK101" in codes(jobs, programs)


@pytest.mark.parametrize(
    ("command", "name", "reason"),
    [
        ("srun python <script>", "<script>", "it is a placeholder"),
        ("srun python <path>/train.py", "<path>/train.py", "because of the placeholder <path>"),
        ("bash {{ a.b }}/x/run.sh", "{{ a.b }}/x/run.sh", "because of the placeholder {{ a.b }}"),
        ("{{ launch_it }} x", "{{ launch_it }}", "it is a placeholder"),
        ("python $TRAIN_PATH/deepy.py", "$TRAIN_PATH/deepy.py", "only the job knows its path"),
        ("bash /data/$USER/run.sh", "/data/$USER/run.sh", "only the job knows its path"),
        ("python ${CODE:-/data}/a.py", "a.py", "not found at /data/a.py"),
        ("python ~/code/a.py", "a.py", "not found at ~/code/a.py"),
    ],
)
def test_what_is_not_read_is_named_as_the_author_writes_it(command, name, reason):
    job = Document("job.sh", f"#!/bin/bash\n#SBATCH --nodes=1\n{command}\n")
    (job_read,) = read_subjects([job], [], lambda document, name: None).jobs
    assert [(one.name, one.reason) for one in job_read.not_followed] == [(name, reason)]


def test_a_folder_to_fill_in_leaves_the_program_that_is_beside_the_script():
    text = "#!/bin/bash\n#SBATCH --nodes=1\nsrun python <path-to>/train.py --data <data>/x <in.txt>/tmp/out\n"
    asked = []
    read_subjects([Document("job.sh", text)], [], lambda document, name: asked.append(name))
    assert [name.rpartition("/")[2] for name in asked] == ["train.py"]


def test_a_value_to_fill_in_leaves_a_program_complete():
    page = "```python\nimport torch\nn = <number of steps>\nx = torch.load('/data/<project>/x.pt', YOUR_MAP)\n```\n"
    _, (program,) = page_documents(Document("page.md", page, name="page.md"))
    assert program.complete and "n = _number_of_steps_" in program.text


def test_lines_of_a_template_are_no_commands():
    text = (
        "#!/bin/bash\n{% if gpus %}\n#SBATCH --gres=gpu:{{ gpus }}\n{% endif %}\n#SBATCH --nodes=2\nsrun a\n"
    )
    assert codes([Document("job.sh", text)]) == set()
    assert read_job(Document("job.sh", text)).request.nodes == 2


@pytest.mark.parametrize("line", ["{{ header }}", "{{header}}", "  {{ a.b }} {{ c }}", "<header>"])
def test_a_placeholder_alone_on_a_line_is_no_command(line):
    text = f"#!/bin/bash\n{line}\n#SBATCH --nodes=2\n%ssrun a\n"
    job = read_job(Document("job.sh", text % ""))
    assert [directive.name for directive in job.request.directives] == ["nodes"]
    assert "RK123" not in codes([job.document])
    assert "RK123" in codes([Document("job.sh", text % "module load x\n#SBATCH --mem=1G\n")])


def test_a_redirection_stays_one():
    (command,) = read_job(Document("job.sh", "#!/bin/bash\nsort <names.txt >sorted.txt\n")).commands
    assert [(redirect.operator, redirect.target.known) for redirect in command.redirects] == [
        ("<", "names.txt"),
        (">", "sorted.txt"),
    ]


def test_a_slide_that_shows_two_states_is_no_script():
    page = "- It was\n- ```bash\n#SBATCH --nodes=1\n```\n- Became\n- ```bash\n#SBATCH --nodes=16\nexport A=1\n```\n"
    jobs, _ = page_documents(Document("slides.md", page, name="slides.md"))
    assert "RK123" not in codes(jobs)


def test_pieces_that_share_no_name_are_programs_of_their_own():
    page = "```python\nimport torch\nx = torch.ones(1)\n```\n\nand\n\n```python\nprint(sum([1, 2]))\n```\n"
    _, programs = page_documents(Document("page.md", page, name="page.md"))
    assert [program.text for program in programs][:1] == ["import torch\nx = torch.ones(1)\n"]
