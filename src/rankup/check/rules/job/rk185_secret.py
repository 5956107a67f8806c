"""A key in a job script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

#: Whose key it is, and what one looks like (with a place that names its service, or a beginning of its own).
_KEYS = (
    ("Weights & Biases", re.compile(r"(?i)wandb[^\n#]{0,40}?[ =\"':]([0-9a-f]{40})\b")),
    ("Hugging Face", re.compile(r"\b(hf_[A-Za-z0-9]{30,})\b")),
    ("GitHub", re.compile(r"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{50,})\b")),
    ("OpenAI", re.compile(r"\b(sk-(?:proj-)?[A-Za-z0-9_-]{40,})")),
    ("Comet", re.compile(r"\bCOMET_API_KEY=[\"']?([A-Za-z0-9]{25})\b")),
)
_FEWEST_CHARACTERS = 8  # that differ: xxxxxxxx is a placeholder


def find(job: Job) -> Iterator[Match]:
    for service, pattern in _KEYS:
        for key in pattern.finditer(job.document.text):
            if len(set(key.group(1))) >= _FEWEST_CHARACTERS:
                yield Match(
                    job.document,
                    Span(*key.span(1)),
                    f"This is a key of {service}; who reads the script has it.",
                )


RULE = Rule(
    code="RK185",
    name="secret",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A job script, or a comment of it, holds the key of a service.",
    why="Job scripts are copied, published, and kept by the scheduler, where others may read them (scontrol write "
    "batch_script).",
    fix="Revoke the key. Log in once by hand, or read the key from a file that only you can read.",
    find=find,
    fires=(
        """#!/bin/bash
#SBATCH --gres=gpu:1
export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567
python train.py
""",
        """#!/bin/bash
#SBATCH --gres=gpu:1
# huggingface-cli login --token hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --gres=gpu:1
export WANDB_API_KEY=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
python train.py
""",
        """#!/bin/bash
#SBATCH --gres=gpu:1
git checkout 0123456789abcdef0123456789abcdef01234567  # the commit of the paper, wandb is off
export WANDB_API_KEY=$(cat ~/.wandb_key)
python train.py
""",
    ),
)
