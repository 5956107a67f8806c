"""A job script and sizes → the report: processes, findings, and what the rehearsal could not know or did not do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rankup.check.document import Document
from rankup.check.facts.job.job import Job
from rankup.check.facts.job.reader import read_job
from rankup.check.rules.job import rk149_log_folder as log_folder
from rankup.errors import RankupError
from rankup.findings.finding import Confidence, Finding, Severity, in_order
from rankup.findings.text import count, text_lines
from rankup.rehearse.allocation import Allocation
from rankup.rehearse.judge import judge
from rankup.rehearse.processes import Launch, Started, launches, started
from rankup.rehearse.rehearse import Options, Rehearsal, rehearse, submit_folder
from rankup.rehearse.request import Sizes, allocation_of
from rankup.rehearse.table import changed_lines, table_lines

#: Notes of stand-ins that are findings: code → severity and confidence. All others are only listed.
_FINDINGS = {
    "step-refused": (Severity.ERROR, Confidence.SURE),
    "bad-srun": (Severity.ERROR, Confidence.SURE),
    "bad-mpirun": (Severity.ERROR, Confidence.SURE),
    "bad-command": (Severity.ERROR, Confidence.SURE),
    "new-job": (Severity.ERROR, Confidence.SURE),
    "step-waits": (Severity.WARNING, Confidence.LIKELY),
    "no-environment": (Severity.WARNING, Confidence.SURE),
    "srun-warning": (Severity.WARNING, Confidence.SURE),
    "no-gpu": (Severity.WARNING, Confidence.LIKELY),
    "outside": (Severity.NOTE, Confidence.SURE),
    "takes-input": (Severity.WARNING, Confidence.SURE),
}
_MAKES_LOG_FOLDERS = (23, 2)  # the first SLURM that does


@dataclass
class Report:
    """What ``rankup rehearse`` prints."""

    script: Path
    rehearsal: Rehearsal
    launches: list[Launch]
    findings: list[Finding]
    assumed: list[str] = field(default_factory=list)

    @property
    def job(self) -> Allocation:
        return self.rehearsal.scenario.allocation

    def lines(self, width: int) -> list[str]:
        """The report as text of at most ``width`` columns (commands and paths may be longer)."""
        lines = [_headline(self.script, self.job), *(f"  assumed: {text}" for text in self.assumed), ""]
        lines += table_lines(self.launches, width)
        not_done = self.not_done()
        if not_done:
            lines += ["Not done, or not known:", *(f"  {text}" for text in not_done), ""]
        changed = changed_lines(self.rehearsal.changed, str(self.rehearsal.scenario.folder))
        if changed:
            lines += ["Files that the script would change (nothing was changed):", *changed[:20]]
            lines += [f"  … and {len(changed) - 20} more"] if len(changed) > 20 else []
            lines.append("")
        if self.rehearsal.scenario.for_real:
            last = self.rehearsal.output.rstrip().splitlines()[-20:]
            lines += ["The end of what the script printed:", *(f"  {line}" for line in last), ""]
        lines += text_lines([_shown(finding) for finding in self.findings], width)
        lines.append(count(self.findings) or "No findings.")
        return lines

    def not_done(self) -> list[str]:
        """What stand-ins have noted, each text once, with how often."""
        texts: dict[str, int] = {}
        for event in self.rehearsal.events:
            if event["kind"] == "note" and event["code"] not in _FINDINGS:
                texts[event["text"]] = texts.get(event["text"], 0) + 1
        noted = [text + (f" ({times} times)" if times > 1 else "") for text, times in texts.items()]
        left_out = self.rehearsal.left_out
        if left_out:
            noted.append(
                f"left out of the copy of the folder: {', '.join(left_out[:8])}{' …' * (len(left_out) > 8)}"
            )
        return noted

    def as_dict(self) -> dict[str, Any]:
        return {
            "script": str(self.script),
            "allocation": self.job.as_dict(),
            "assumed": self.assumed,
            "processes": [one.as_dict() for launch in self.launches for one in launch.processes],
            "findings": [finding.as_dict() for finding in self.findings],
            "not_done": self.not_done(),
            "changed": self.rehearsal.changed,
            "pretended": self.rehearsal.pretended,
            "output": self.rehearsal.output,
            "exit_code": self.rehearsal.code,
            "ended_by": self.rehearsal.ended_by,
        }


def _shown(finding: Finding) -> Finding:
    """An error that is only likely says so: it does not fail the rehearsal."""
    unsure = finding.severity is Severity.ERROR and finding.confidence is Confidence.LIKELY
    return replace(finding, code=f"{finding.code}, likely") if unsure else finding


def report_of(script: Path, sizes: Sizes, options: Options, env: Mapping[str, str]) -> Report:
    """Rehearse ``script`` and judge what it starts."""
    try:
        text = script.read_text(errors="replace")
    except OSError as error:
        raise RankupError("script-not-found", f"cannot read {script}: {error.strerror}") from None
    read = read_job(Document(str(script), text))
    job, seconds, assumed = allocation_of(read.request, sizes, script.name)
    folder = submit_folder(script)
    read.list_folder = lambda name: () if (folder / name).is_dir() else None
    without_log = list(_log_folder(read, options))
    report = judged(script, rehearse(script, job, replace(options, job_seconds=seconds), env), assumed)
    return replace(report, findings=in_order([*report.findings, *without_log]))


def _log_folder(job: Job, options: Options) -> Iterator[Finding]:
    """What check says of a log in a folder that is not there; the SLURM that is pretended may end such a job."""
    ends = job.scheduler == "slurm" and options.slurm_version < _MAKES_LOG_FOLDERS
    for match in log_folder.find(job):
        yield Finding(
            log_folder.RULE.name,
            Severity.ERROR if ends else Severity.NOTE,
            match.message.rstrip("."),
            place=str(match.document.place(match.span)),
            why=log_folder.RULE.why,
            fix=log_folder.RULE.fix,
        )


def judged(script: Path, rehearsal: Rehearsal, assumed: list[str]) -> Report:
    """The report of a rehearsal."""
    found = started(rehearsal.scenario, rehearsal.events)
    made = launches(found)
    job = rehearsal.scenario.allocation
    complete = made[:-1] if _was_working(rehearsal) else made  # the last launch may lack processes
    findings = [
        *_one_cause([*_notes(rehearsal), *_lost_files(script, found, rehearsal), *_ending(rehearsal),
                     *_nothing(found, rehearsal)]),
        *_programs(found, rehearsal), *judge(complete, job), *_cpus(found, rehearsal),
    ]  # fmt: skip
    open_sizes = job.scheduler == "slurm" and not (job.ntasks or job.ntasks_per_node or job.cpus_per_task)
    unsure = {"no-endpoint"} if _unknown_commands(rehearsal) else set()
    unsure |= {"step-refused"} if open_sizes or not any(job.gpus) else set()  # a site may give whole nodes
    findings = [replace(one, confidence=Confidence.LIKELY) if one.code in unsure else one for one in findings]
    if made and not any(job.gpus):
        assumed = [*assumed, "no GPU, since the directives ask for none (--gpus-per-node, --site)"]
    by_ray = any(event["text"].startswith("ray start ") for event in _noted(rehearsal))
    if by_ray:
        assumed = [*assumed, "Ray starts its workers on the nodes by itself: they are not in the table"]
    if by_ray or _was_working(rehearsal):
        findings = [finding for finding in findings if finding.code not in ("idle-nodes", "idle-gpus")]
    return Report(script, rehearsal, made, in_order(findings), assumed)


def _headline(script: Path, job: Allocation) -> str:
    sizes = [f"{job.num_nodes} node{'s' * (job.num_nodes > 1)}"]
    if any(job.gpus):
        sizes.append(_amount(job.gpus, "GPU"))
    sizes.append(_amount(job.cpus, "CPU"))
    name = {"slurm": "SLURM", "pbs": "PBS", "torque": "Torque"}[job.scheduler]
    return f"Rehearsal of {script.name} under {name}: {', '.join(sizes)}"


def _amount(numbers: tuple[int, ...], unit: str) -> str:
    """Of each node: ``1 CPU``, ``16 CPUs each``, ``1 to 4 CPUs each``."""
    return f"{_range(numbers)} {unit}{'s' * (set(numbers) != {1})}{' each' * (len(numbers) > 1)}"


def _range(numbers: tuple[int, ...]) -> str:
    return str(numbers[0]) if len(set(numbers)) == 1 else f"{min(numbers)} to {max(numbers)}"


def _noted(rehearsal: Rehearsal) -> Iterator[dict[str, Any]]:
    return (event for event in rehearsal.events if event["kind"] == "note")


def _notes(rehearsal: Rehearsal) -> Iterator[Finding]:
    for event in _noted(rehearsal):
        if event["code"] in _FINDINGS:
            severity, confidence = _FINDINGS[event["code"]]
            yield Finding(event["code"], severity, event["text"], confidence=confidence)
    for path in rehearsal.pretended:
        yield Finding(
            "not-here", Severity.NOTE, f"{path} is not on this machine; it was pretended",
            why="On the cluster it may be different from what was assumed.", fix="rehearse on the cluster's login node",
        )  # fmt: skip


def _one_cause(found: list[Finding]) -> list[Finding]:
    """Without the errors that follow from the first: the script ends, and so starts nothing."""
    first = next((one for one in found if one.severity is Severity.ERROR), None)
    follows = ("script-failed", "nothing-started") if first is not None else ()
    return [one for one in found if one is first or one.code not in follows]


def _lost_files(script: Path, found: list[Started], rehearsal: Rehearsal) -> Iterator[Finding]:
    """Files of the job's folder that the script's shells did not find; others are pretended."""
    failed = bool(rehearsal.code) or not found
    for match in {match["path"]: match for match in rehearsal.not_found()}.values():
        if match["path"].startswith("/"):
            continue
        yield Finding(
            "missing-file", Severity.ERROR if failed else Severity.WARNING,
            f"{'the folder ' * bool(match['cd'])}{match['path']} is not there",
            place=f"{script.name}:{match['line']}" if match["line"] else "",
            why="The script ends with an error." if rehearsal.code else "What it does is not done.",
            fix="check the path, and where the script changes its folder",
            confidence=Confidence.LIKELY if rehearsal.pretended else Confidence.SURE,
        )  # fmt: skip


def _was_working(rehearsal: Rehearsal) -> bool:
    """Whether the script still started programs when its time was over: a busy machine, or many launches."""
    starts = [event["time"] for event in rehearsal.events if event["kind"] in ("launch", "program")]
    if rehearsal.ended_by != "timeout" or not starts:
        return False
    return bool(max(starts) - rehearsal.scenario.started > 0.75 * rehearsal.seconds_allowed)


def _ending(rehearsal: Rehearsal) -> Iterator[Finding]:
    last = [line for line in rehearsal.output.splitlines() if line.strip()][-3:]
    if _was_working(rehearsal):
        yield Finding(
            "not-finished", Severity.WARNING,
            f"the script still started programs after {rehearsal.seconds_allowed:g} s; what follows is not rehearsed",
            why="This machine is busy, or the script starts many programs.", fix="--time-limit gives it longer",
        )  # fmt: skip
    elif rehearsal.ended_by == "timeout":
        yield Finding(
            "would-hang", Severity.ERROR, f"the script did not end within {rehearsal.seconds_allowed:g} s",
            place="; ".join(last[-1:]),
            why="Trainings end at once here, so the script itself waits, or works for long.",
            fix="look for sleep, wait, and loops that wait for something; --time-limit gives it longer",
        )  # fmt: skip
    elif rehearsal.ended_by == "processes":
        yield Finding(
            "too-many-processes", Severity.ERROR, "the script starts processes without end, and was killed"
        )
    elif rehearsal.code:
        yield Finding(
            "script-failed", Severity.ERROR, f"the script ends with exit code {rehearsal.code}", place="; ".join(last),
            why="What stands after the place where it ended is not run.",
            fix="--output prints what the script printed",
            confidence=Confidence.LIKELY if rehearsal.pretended else Confidence.SURE,
        )  # fmt: skip


def _unknown_commands(rehearsal: Rehearsal) -> list[str]:
    """Commands that are not on this machine, and were taken for ones that work."""
    texts = dict.fromkeys(
        event["text"] for event in _noted(rehearsal) if "was taken for a command" in event["text"]
    )
    return [text.partition(" ")[0] for text in texts]


def _nothing(found: list[Started], rehearsal: Rehearsal) -> Iterator[Finding]:
    unknown = _unknown_commands(rehearsal)
    inside = any("is in the image alone" in event["text"] for event in _noted(rehearsal))
    if not found and inside:
        yield Finding(
            "nothing-started", Severity.WARNING, "what the script starts is in an image: it is not rehearsed",
            why="The command is not on this machine, so its ranks are not known.",
            fix="rehearse with python in its place, or where the command is installed", confidence=Confidence.LIKELY,
        )  # fmt: skip
    elif not found and unknown:
        yield Finding(
            "nothing-started", Severity.WARNING, f"what {', '.join(unknown)} would start is not rehearsed",
            why="The command is not on this machine, so its ranks are not known.",
            fix="rehearse where the command is installed", confidence=Confidence.LIKELY,
        )  # fmt: skip
    elif not found:
        yield Finding(
            "nothing-started", Severity.ERROR, "the script starts no training program",
            why="No command that it ran is a Python program that imports torch, or a launcher of one.",
            fix="--output prints what the script printed", confidence=Confidence.LIKELY,
        )  # fmt: skip


def _programs(found: list[Started], rehearsal: Rehearsal) -> Iterator[Finding]:
    ends = [event for event in rehearsal.events if event["kind"] == "script-end"]
    early = [one for one in found if one.background and any(map(one.outlives, ends))]
    if early and rehearsal.ended_by == "itself":
        yield Finding(
            "ended-too-early", Severity.ERROR,
            f"the script ends while its {early[0].event['name']} still runs in the background",
            why="The scheduler ends a job with its script, and kills what still runs.",
            fix="write `wait` at the end of the script",
        )  # fmt: skip
    lost = {one.program["target"] or one.command: one for one in found if one.missing}
    for one in lost.values():
        target = one.program["target"]
        if target.startswith("/") and not target.startswith(str(rehearsal.scenario.folder)):
            yield Finding(
                "not-here", Severity.NOTE, f"{target} is not on this machine; its ranks are those of its launcher",
                why="What it reads and takes is not known.", fix="rehearse on the cluster's login node",
            )  # fmt: skip
            continue
        yield Finding(
            "missing-program", Severity.ERROR,
            f"there is no {target} in {one.event['cwd']}" if target else f"{one.command}: the program's name is empty",
            why="Python ends with an error on every rank.",
            fix="check the path, and where the script changes its folder",
            confidence=Confidence.LIKELY if rehearsal.pretended else Confidence.SURE,
        )  # fmt: skip


def _cpus(found: list[Started], rehearsal: Rehearsal) -> Iterator[Finding]:
    job, version = rehearsal.scenario.allocation, rehearsal.scenario.slurm_version
    if job.scheduler != "slurm" or (job.cpus_per_task or 1) < 2 or not (22, 5) <= version < (23, 11):
        return
    steps = [launch for one in found for launch in one.launches if launch["launcher"] == "srun"]
    if any(launch["cpus_per_task"] is None for launch in steps):
        yield Finding(
            "cpus-lost", Severity.WARNING,
            f"srun of SLURM {version[0]}.{version[1]:02} ignores the job's --cpus-per-task={job.cpus_per_task}",
            why="Each task may get one CPU, and its data loader starves.",
            fix="srun --cpus-per-task=$SLURM_CPUS_PER_TASK, or export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
        )  # fmt: skip
