"""The code of a page becomes the files that its reader makes of it, each line at its place in the page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.check.document import Document, Span
from rankup.check.pages.joining import page_documents

PIECES = """\
# Two nodes

First write `train.py`:

```bash
import os
import torch

def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
```

then the loop:

```python
    for epoch in range(10):
        print(epoch)

main()
```
"""
IN_TWO_BLOCKS = """\
The script `job.sh` begins with its resources:

```
#!/bin/bash
#SBATCH --nodes=2
```

and starts torchrun:

```bash
srun torchrun train.py
```
"""
SCRIPT_BY_CAT = """\
1. Write the script:

   ```sh
   cat > other.sh <<'END'
   #!/bin/bash
   #SBATCH -N 1
   srun python train.py
   END
   sbatch other.sh
   ```
"""
RST = """\
Save as ``job.sbatch``:

.. code-block:: bash
   :caption: job.sbatch

   #!/bin/bash
   #SBATCH --nodes=2
   srun python train.py

And the program::

   import torch
   print(torch.cuda.is_available())

Text.
"""
HTML = """\
<p>Save <code>job.sh</code>:</p>
<div class="highlight-bash"><pre>
#!/bin/bash
#SBATCH --nodes=2
srun python train.py &amp;&amp; echo <b>ok</b>
</pre></div>
"""


def documents(text, name="page.md"):
    return page_documents(Document(name, text, name=name))


def test_pieces_of_one_program_are_joined_whatever_their_fences_say():
    jobs, (program,) = documents(PIECES)
    assert jobs == []
    assert (program.name, program.complete) == ("train.py", True)
    assert "def main():" in program.text and "for epoch" in program.text


def test_a_place_in_a_joined_program_is_the_line_of_the_page():
    _, (program,) = documents(PIECES)
    for words in ("set_device", "print(epoch)"):
        start = program.text.index(words)
        place = program.place(Span(start, start + len(words)))
        line = PIECES.split("\n")[place.line - 1]
        assert line[place.column - 1 : place.end_column - 1] == words


def test_a_piece_that_is_missing_makes_a_program_incomplete():
    _, (program,) = documents(PIECES.replace("import os\n", ""))
    assert not program.complete


@pytest.mark.parametrize("mark", ["...", "# ...", "…"])
def test_an_ellipsis_makes_a_script_incomplete(mark):
    (job,), _ = documents(f"```bash\n#!/bin/bash\n#SBATCH --nodes=2\n{mark}\nsrun python a.py\n```\n")
    assert not job.complete


def test_a_script_of_two_blocks_is_one_and_not_complete():
    (job,), programs = documents(IN_TWO_BLOCKS)
    assert (job.name, job.complete, programs) == ("job.sh", False, [])
    assert job.text == "#!/bin/bash\n#SBATCH --nodes=2\nsrun torchrun train.py\n"


HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n"
REST = "module load cuda\ntorchrun train.py\n"


def in_two(first, second, rest=REST, head=HEAD):
    return f"{first}\n{head}```\n\n{second}\n{rest}```\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('```bash title="job.sh"', 'and goes on with\n\n```bash title="job.sh"'),
        ("```bash\n# job.sh", "Then:\n\n```bash\n# job.sh"),
        ("```bash", "We continue the script with the launch:\n\n```bash"),
        ("`job.sh`:\n\n```bash", "`job.sh` (continued):\n\n```bash"),
        ("Write `job.sh`:\n\n```bash", "Then add to `job.sh`:\n\n```bash"),
    ],
)
def test_pieces_that_the_page_calls_one_script_are_joined(first, second):
    for head in (HEAD, HEAD + "set -e\n"):
        (job,), _ = documents(in_two(first, second, head=head))
        assert job.complete and "--nodes=2" in job.text and job.text.endswith(REST)


@pytest.mark.parametrize(
    ("second", "rest", "head"),
    [
        ('```bash title="other.sh"', REST, HEAD + "set -e\n"),
        ('```bash title="job.sh"', REST, HEAD + REST),
        ('```bash title="job.sh"', HEAD + REST, HEAD),
        ('```bash title="job.sh"', "#SBATCH --mem=1G\n", HEAD + "set -e\n"),
        ("Continue with `other.sh`:\n\n```bash", REST, HEAD + "set -e\n"),
        ("To continue, install:\n\n```bash", "pip install torch\n", HEAD + "set -e\n"),
        ("Continue, and submit the job:\n\n```bash", "sbatch job.sh\n", HEAD + "set -e\n"),
        ("```bash\n# how to start job.sh", "bash job.sh\n", HEAD + "set -e\n"),
        ("Another slide:\n\n```bash", REST, HEAD + "set -e\n"),
    ],
)
def test_pieces_that_the_page_does_not_call_one_script_stay_apart(second, rest, head):
    jobs, _ = documents(in_two('```bash title="job.sh"', second, rest, head))
    assert jobs[0].text == head


def test_a_file_written_by_cat_is_that_file_and_its_columns_are_those_of_the_page():
    (job,), _ = documents(SCRIPT_BY_CAT)
    assert (job.name, job.complete) == ("other.sh", True)
    assert job.text.splitlines()[0] == "#!/bin/bash"
    start = job.text.index("srun")
    place = job.place(Span(start, start + 4))
    assert SCRIPT_BY_CAT.split("\n")[place.line - 1][place.column - 1 : place.end_column - 1] == "srun"


def test_restructured_text():
    (job,), (program,) = documents(RST, "page.rst")
    assert job.name == "job.sbatch" and job.text.startswith("#!/bin/bash\n#SBATCH")
    assert program.text.startswith("import torch\n") and "Text." not in program.text


def test_html_with_its_entities_and_tags():
    (job,), _ = documents(HTML, "page.html")
    assert job.name == "job.sh" and "python train.py && echo ok" in job.text


@pytest.mark.parametrize("container", ['=== "Slurm"', '!!! note "Two nodes"', '??? example "Two nodes"'])
@pytest.mark.parametrize("blank", ["", "\n"])
def test_what_a_container_of_mkdocs_holds_is_read(container, blank):
    page = (
        f"Text.\n\n{container}\n{blank}    ```bash\n    #!/bin/bash\n    #SBATCH -N 2\n    srun a\n    ```\n"
    )
    (job,), _ = documents(page)
    start = job.text.index("srun")
    place = job.place(Span(start, start + 4))
    assert page.split("\n")[place.line - 1][place.column - 1 : place.end_column - 1] == "srun"


@pytest.mark.parametrize(
    "words",
    ["Don't do this:", "This is wrong:", "❌", "The following does not work:", "Avoid this pattern."],
)
def test_a_bad_example_is_left_out(words):
    assert documents(f"{words}\n\n```\n#!/bin/bash\n#SBATCH -N 2\ntorchrun a.py\n```\n") == ([], [])


def test_commands_to_type_and_their_output_are_no_scripts():
    page = "Submit:\n\n```console\n$ sbatch job.sh\nSubmitted batch job 4711\n```\n\n```\nsrun python train.py\n```\n"
    assert documents(page) == ([], [])


@pytest.mark.parametrize("output", ["> 0.032", "| 0.032 | a |", "Traceback (most recent call last):"])
def test_a_block_with_printed_output_is_no_program(output):
    code = "".join(f"    a{n} = torch.rand({n})\n" for n in range(12))
    page = f".. code-block:: python\n\n    import torch\n\n{code}    %s\n"
    assert documents(page % output, "page.rst") == ([], [])
    assert len(documents(page % "a +", "page.rst")[1]) == 1


def test_a_whole_program_after_another_one_is_a_program_of_its_own():
    one = "```python\nimport torch\nprint(torch.ones({}))\n```\n"
    _, programs = documents(one.format(1) + "\nand\n\n" + one.format(2))
    assert len(programs) == 2 and all(program.complete for program in programs)


@given(
    st.text(alphabet="`~ \n\t#SBATCH-N2importorch<>=().:$|*1", max_size=300),
    st.sampled_from(["md", "rst", "html"]),
)
def test_no_text_breaks_the_reader(text, suffix):
    for documents_of_kind in documents(text, f"page.{suffix}"):
        for document in documents_of_kind:
            document.place(Span(0, len(document.text)))
