"""``rankup snapshots``: what states a run has saved, whether they are whole, where two differ, and a plain model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankup.cli import console
from rankup.cli.options import JsonOption
from rankup.cli.run_targets import RUNS_ROOT, RunsRootOption, place
from rankup.cli.snapshot_lines import differences, listing, opened, row, verdict, verdict_line
from rankup.snapshots.layout import damaged, entries, find_entry, find_root, trainings

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="The saved states of a run.")

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="a run (name, id or directory), its snapshots, or one snapshot")
]


@app.command("ls")
def ls(
    directory: DirectoryArgument, runs_root: RunsRootOption = RUNS_ROOT, as_json: JsonOption = False
) -> None:
    """Every snapshot with its step, age, size and metrics. Damaged: one that a run has set aside."""
    root = find_root(place(directory, runs_root))
    rows = [
        one
        for folder in trainings(root)
        for one in (
            *(row(entry.path, root) for entry in entries(folder)),
            *(row(path, root, aside=True) for path in damaged(folder)),
        )
    ]
    console.print_json(rows) if as_json else print("\n".join(listing(rows, root)))


@app.command("verify")
def verify_command(
    directory: DirectoryArgument, runs_root: RunsRootOption = RUNS_ROOT, as_json: JsonOption = False
) -> None:
    """Compare the size and SHA-256 of every file; exit code 1 where a snapshot is damaged. Changes nothing."""
    directory = place(directory, runs_root)
    root = find_root(directory)
    found = [entry for folder in trainings(root) for entry in entries(folder)]
    answers = [verdict(entry, root) for entry in found or [find_entry(directory)]]
    if as_json:
        console.print_json(answers)
    else:
        print("\n".join(verdict_line(answer) for answer in answers))
    raise typer.Exit(0 if all(answer["good"] for answer in answers) else 1)


@app.command("diff")
def diff(
    left: Annotated[Path, typer.Argument(metavar="A", help="a snapshot, or a run: then its newest")],
    right: Annotated[Path, typer.Argument(metavar="B")],
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Which tensors and values differ, and by how much at most; exit code 1 where any does."""
    from rankup.snapshots.diff import compare

    found = compare(opened(place(left, runs_root)), opened(place(right, runs_root)))
    console.print_json([vars(one) for one in found]) if as_json else print("\n".join(differences(found)))
    raise typer.Exit(1 if found else 0)


@app.command("export")
def export_command(
    directory: DirectoryArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT.safetensors")],
    part: Annotated[str, typer.Option(metavar="NAME", help="which part of the state")] = "model",
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """The model of a snapshot (of a run: the newest) as a plain state_dict in a safetensors file."""
    from rankup.snapshots.export import export

    entry, manifest = opened(place(directory, runs_root))
    count = export(entry, manifest, out, part)
    if as_json:
        console.print_json(
            {"snapshot": str(entry.path), "step": manifest.step, "out": str(out), "tensors": count}
        )
    else:
        print(f"{out}: {count} tensors of step {manifest.step}")
