"""``rankup verify``: kill a training, resume it, and compare every step bit for bit."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rankup.cli.job_options import SCRIPT_LAST, flags_from, some_job_options
from rankup.cli.options import JsonOption, taking
from rankup.cli.output import console
from rankup.cli.target_parser import script_or_workload_job
from rankup.cli.workload_job import require_torch
from rankup.core.arrays import parse_numbers
from rankup.core.elapsed import Elapsed
from rankup.core.files import write_atomic
from rankup.core.rundir import RunDir
from rankup.core.shell import quote
from rankup.core.units import duration, parse_duration
from rankup.errors import RankupError
from rankup.verify.attempts import Attempts
from rankup.verify.proof import verify
from rankup.verify.scenario import VerifyPlan
from rankup.verify.table import as_dict, text

app = typer.Typer(add_completion=False, rich_markup_mode=None)


# Options end at the script or workload: everything after it is its own.
class VerifyCommand(TyperCommand):
    """``--shorten`` may have a number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_value = {
            name
            for option in self.params
            for name in getattr(option, "opts", ())
            if name.startswith("-") and not getattr(option, "is_flag", False)
        }
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            if args[at] == "--shorten" and not "".join(args[at + 1 : at + 2]).isdigit():
                args = [*args[:at], "--shorten=auto", *args[at + 1 :]]
            at += 1 + (args[at] in takes_value)
        return super().parse_args(ctx, args)


@app.command("verify", cls=VerifyCommand, context_settings=SCRIPT_LAST)
@taking(some_job_options("run", "threads", "runs_root", "lost"))
def verify_command(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT|WORKLOAD [ARGS…]",
            help="a script as for `rankup run`, or a workload as for `rankup train`",
        ),
    ],
    steps: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="train N steps; default: to the end of the script")
    ] = None,
    kills: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="K", help="number of kills; default: one of each kind that applies to the script"
        ),
    ] = None,
    world: Annotated[
        str, typer.Option(metavar="N,N,…", help="also stop and resume on these numbers of processes")
    ] = "",
    nproc_per_node: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="P",
            help="processes of the training; default: one, without the variables of a launcher",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="cut each loop to two epochs of a few steps, and kill at fewer places"),
    ] = False,
    epoch_steps: Annotated[int, typer.Option(min=2, metavar="N", help="with --quick: steps of an epoch")] = 3,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="prove nothing if two starts take longer, e.g. 5m")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="also write the answer of --json to FILE")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", metavar="FILE", help="also write the answer as a page, e.g. proof.html"),
    ] = None,
    resume_args: Annotated[
        str,
        typer.Option(
            "--resume-args",
            metavar="ARGS",
            help="with what its user starts the script after a kill, e.g. '--resume {last}'; default: nothing more",
        ),
    ] = "",
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar="GLOB",
            help="{last} is the newest path of this pattern, e.g. 'out/*.pt', {number} the last number in its name",
        ),
    ] = "",
    shorten: Annotated[
        str,
        typer.Option(
            metavar="[N]",
            help="end a script without run.steps after N steps; default: after as many as hold two of its saves",
        ),
    ] = "",
    seed: Annotated[int, typer.Option(metavar="S", help="seed of the points where it is interrupted")] = 0,
    as_json: JsonOption = False,
    **asked: Any,
) -> None:
    """Prove that a training resumes exactly: train it, kill it, resume it, compare every step.

    It trains twice without interruption, once with kills, and once on other numbers of processes (--world). It names
    the first step that differs, what differs there, and the likely cause. The exit code is 1 if anything differs. The
    files that the script writes are compared too, and put back as they were.
    """
    require_torch()
    worlds, seconds = _worlds(world), parse_duration(budget) if budget else None
    job = script_or_workload_job(command, flags_from(asked))
    for note in job.notes:
        console.say(f"rankup: {note}")
    folder = RunDir.create(job.spec.runs_root, f"verify-{job.spec.name}").path
    steps = _shortened(shorten, steps)
    plan = VerifyPlan(
        nproc_per_node or 1,
        kills,
        worlds,
        steps,
        seed,
        epoch_steps if quick else None,
        seconds,
        shorten == "auto",
    )
    resumed = ResumeArguments(resume_args, checkpoint, Path(job.spec.folder))
    attempts = Attempts(
        job, folder, Lines(), env=plan.env, limit=seconds, resume_args=resumed, alone=nproc_per_node is None
    )
    proof = verify(attempts, plan, python=job.spec.python)
    answer = as_dict(proof, str(folder))
    if out is not None:
        write_atomic(out, json.dumps(answer))
    if page is not None:
        from rankup.cli.output.verify_page import verify_page

        write_atomic(page, verify_page(proof, quote(command), str(folder)))
    if as_json:
        console.print_json(answer)
    else:
        print("\n" + text(proof))
    print(f"traces     {folder}", file=sys.stderr if as_json else sys.stdout)
    raise typer.Exit(proof.stopped.exit_code if proof.stopped else 0 if proof.same else 1)


def _shortened(words: str, steps: int | None) -> int | None:
    if words in ("", "auto"):
        return steps
    if words.isdigit() and int(words) >= 2:
        return int(words)
    raise RankupError(
        "bad-shorten", f"--shorten must be at least 2 steps, got {words!r}", hint="e.g. --shorten 40"
    )


def _worlds(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    with contextlib.suppress(ValueError):
        counts = parse_numbers(text)
        if len(counts) > 1:
            return tuple(counts)
    raise RankupError(
        "bad-world",
        f"--world must be at least two numbers of processes, got {text!r}",
        hint="e.g. --world 1,2 starts on one process, stops, and resumes on two",
    )


class ResumeArguments:
    """With what a script is started after a kill. ``{last}``: the newest checkpoint; ``{number}``: the last number in
    its name."""

    def __init__(self, arguments: str, pattern: str, folder: Path) -> None:
        try:
            self._words = shlex.split(arguments)
        except ValueError as error:
            raise RankupError("bad-resume-args", f"--resume-args {arguments!r}: {error}") from None
        if re.search(r"{(last|number)}", arguments) and not pattern:
            raise RankupError(
                "bad-resume-args",
                "{last} and {number} in --resume-args need --checkpoint",
                hint="for example --checkpoint 'out/*.pt'",
            )
        self._pattern, self._folder = pattern, folder

    def __call__(self) -> list[str]:
        """Nothing before the first checkpoint."""
        if not self._pattern:
            return self._words
        found = max(self._folder.glob(self._pattern), key=lambda path: path.stat().st_mtime, default=None)
        if found is None:
            return []
        last, numbers = str(found.relative_to(self._folder)), re.findall(r"\d+", found.name)
        words = [word.replace("{last}", last) for word in self._words]
        return [word.replace("{number}", numbers[-1]) if numbers else word for word in words]


class Lines:
    """A line per attempt, on stderr; on a terminal, for how long it has been going on."""

    def __init__(self) -> None:
        self._count, self._elapsed = 0, Elapsed("  running")

    def follows(self, interruptions: int, seconds: float) -> None:
        if interruptions:
            kills = f"{interruptions} interruption{'s' * (interruptions > 1)}"
            last = self._count + interruptions + 1
            longest = duration(math.ceil((interruptions + 1) * seconds))
            console.say(f"{kills} and resumes follow, to attempt {last}: about {longest} at most")

    def begins(self, what: str, processes: int) -> None:
        self._count += 1
        on = f"{processes} process{'es' if processes > 1 else ''}"
        console.say(f"attempt {self._count}: {on}, {what} …")
        self._elapsed = Elapsed("  running")

    def tick(self) -> None:
        self._elapsed.tick()

    def ended(self, how: str) -> None:
        self._elapsed.end()
        console.say(f"  {how}, after {time.time() - self._elapsed.since:.0f} s")
