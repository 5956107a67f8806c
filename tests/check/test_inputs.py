"""What a file is, its content tells."""

from __future__ import annotations

import pytest

from rankup.check.document import Document, Span
from rankup.check.inputs import kind_of, read_document, read_inputs
from rankup.errors import RankupError


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("job", "#!/bin/bash\n#SBATCH -N 2\nsrun python a.py\n", "job"),
        ("job.txt", "#PBS -l select=2\n", "job"),
        ("submit.slurm", "srun hostname\n", "job"),
        ("job.lsf", "#BSUB -n 4\njsrun python a.py\n", "job"),
        ("start", "#!/usr/bin/env bash\ntorchrun a.py\n", "job"),
        ("train.py", "print(1)\n", "program"),
        ("train", "#!/usr/bin/env python3\nimport torch\n", "program"),
        ("train.txt", "import torch\nprint(torch.ones(1))\n", "program"),
        ("page.md", "# Title\n", "page"),
        ("page.rst", "Title\n=====\n", "page"),
        ("job.toml", '[job]\nscript = "a.py"\n', "job file"),
        ("pyproject.toml", '[project]\nname = "x"\n', ""),
        ("train.py", "#!/bin/bash\n#SBATCH -N 2\nsrun python a.py\n", "job"),
        ("run.out", "#SBATCH --nodes=2\nepoch 1\n", ""),
        ("log", "#SBATCH --nodes=2\n" + "2024-05-01 10:00:00 step 3\n" * 9, ""),
        ("page.txt", "First write a job.\n\n```\n#SBATCH -N 2\n```\n", "page"),
        (
            "page.txt",
            "You submit the script with sbatch here:\nThe queue then shows your job:\n#SBATCH -N 2\n",
            "page",
        ),
        ("job.txt", "\n# a job\r\n#SBATCH -N 2\nsrun python a.py\n", "job"),
        ("report.txt", "Nodes: 2\n#SBATCH -N 2\nsrun python a.py\n", ""),
        ("report", "Nodes: 2\n  #SBATCH -N 2\n  python a.py\n", ""),
        ("job", "#!/usr/bin/env fish\nset x 1\n", "job"),
        ("job", "#!/usr/bin/env -S bash -e\nsrun a\n", "job"),
        ("job", "  #PBS -l select=2\n  mpiexec python a.py\n", "job"),
        ("job", "#PBS -l select=2\nif [ -f a:b ]; then\n\tmpiexec python a.py\nfi\n", "job"),
        ("Makefile", "all: a.py\n\tsbatch job.sh\n\ncat:\n\tcat <<E\n#SBATCH -N 2\nE\n", ""),
        ("notes.txt", "We used srun last week.\n", ""),
        ("data.csv", "a,b\n1,2\n", ""),
    ],
)
def test_a_file_is_known_by_its_content(name, text, kind):
    assert kind_of(Document(name, text, name=name))[0] == kind


def test_a_folder_is_searched_and_what_is_no_script_of_training_is_left_out(tmp_path):
    files = {
        "job.sh": "#!/bin/bash\n#SBATCH -N 2\n",
        "src/train.py": "import torch\n",
        "src/tool.py": "print(1)\n",
        ".hidden/train.py": "import torch\n",
        "env/pyvenv.cfg": "",
        "env/lib/train.py": "import torch\n",
        "old/job.sh": "#!/bin/bash\n",
        "README.md": "# Title\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "weights.bin").write_bytes(b"\0" * 100)
    inputs = read_inputs([tmp_path], ["old"], read_document)
    names = [d.path.removeprefix(f"{tmp_path}/") for d in (*inputs.jobs, *inputs.programs, *inputs.pages)]
    assert names == ["job.sh", "src/train.py", "README.md"]
    assert inputs.skipped == []


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\r\nb\r\n", "a\r\nb\r\n"),
        ("ä\n".encode("utf-16"), "ä\n"),
        ("ä\n".encode("latin-1"), "ä\n"),
        (b"\xef\xbb\xbfa\n", "a\n"),
        (b"", ""),
    ],
)
def test_every_encoding_is_read(tmp_path, raw, text):
    path = tmp_path / "job.sh"
    path.write_bytes(raw)
    document = read_document(path)
    assert document is not None
    assert document.text == text


def test_a_named_file_that_is_no_text_is_reported_as_skipped(tmp_path):
    path = tmp_path / "a.out"
    path.write_bytes(b"\x7fELF\0\0")
    assert read_inputs([path], (), read_document).skipped == [path]


def test_a_path_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(RankupError, match="file or folder not found"):
        read_inputs([tmp_path / "none.sh"], (), read_document)


def test_places_count_characters_and_not_bytes():
    document = Document("a.py", "é = 1\nüb = f(é)\n")
    assert document.text[document.offset_of_bytes(1, len("üb = ".encode())) :].startswith("f(")
    assert str(document.place(Span(document.text.index("f("), 9))) == "a.py:2:6"


SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n"


@pytest.mark.parametrize(
    "name", ["slurm-9.out", "job.err", "job.LOG", "train.o4711", "train.e4711", "a.o12.3"]
)
def test_the_name_of_a_log_decides_in_a_folder_and_its_content_if_the_user_names_it(tmp_path, name):
    path = tmp_path / name
    path.write_text(SCRIPT)
    assert read_inputs([tmp_path], (), read_document).jobs == []
    assert len(read_inputs([path], (), read_document).jobs) == 1
    for text in (f"{SCRIPT}Epoch 1 loss 0.3\n", f"+ hostname\n{SCRIPT}", "srun hostname\n"):
        path.write_text(text)
        assert read_inputs([path], (), read_document).skipped == [path]


@pytest.mark.parametrize(
    "line",
    ["Epoch 1 loss 0.3", "2024-05-01 12:00:00,1 INFO", "Traceback (most recent call last):", "epoch 2"],
)
def test_a_script_with_output_below_it_is_a_log(line):
    def kind(below):
        return kind_of(Document("run", SCRIPT + below, name="run"), named=True)[0]

    assert kind(f"{line}\n") == ""
    assert kind(f"# {line}\ncat <<'END' > expected\n{line}\nEND\necho '{line}'\n") == "job"


@pytest.mark.parametrize("name", ["job.sh.old", "job.slurm~", "train.py.bak"])
@pytest.mark.parametrize("head", ["", "#!/bin/bash\n"])
def test_a_copy_is_left_out_of_a_folder_and_read_if_it_is_named(tmp_path, name, head):
    (tmp_path / name).write_text(f"{head}#SBATCH --nodes=2\nsrun a\n")
    assert read_inputs([tmp_path], (), read_document).jobs == []
    assert len(read_inputs([tmp_path / name], (), read_document).jobs) == 1
