"""``rankup snapshots``: list, verify and compare the saved states of a run, and export a plain model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.snapshots import differences, opened, print_rows, row, verdict, verdict_line
from rankup.cli.run_argument import RUNS_ROOT, RunsRootOption, place
from rankup.snapshots.layout import damaged, entries, find_entry, find_root, trainings

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="List, verify, compare and export the saved states of runs.",
)

DirectoryArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="a run (name, id or directory), a directory of snapshots, or one snapshot"
    ),
]


@app.command("list")
def list_command(
    directory: DirectoryArgument, runs_root: RunsRootOption = RUNS_ROOT, as_json: JsonOption = False
) -> None:
    """List snapshots with step, age, size and metrics. Nothing is verified.

    Damaged snapshots are those that a resume has found to be damaged and renamed.
    """
    root = find_root(place(directory, runs_root))
    rows = [
        one
        for folder in trainings(root)
        for one in (
            *(row(entry.path, root) for entry in entries(folder)),
            *(row(path, root, aside=True) for path in damaged(folder)),
        )
    ]
    console.print_json(rows) if as_json else print_rows(rows, root)


@app.command("verify")
def verify_command(
    directory: DirectoryArgument, runs_root: RunsRootOption = RUNS_ROOT, as_json: JsonOption = False
) -> None:
    """Check the size and SHA-256 of every file; exit code 1 if a snapshot is damaged. Changes nothing."""
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
    left: Annotated[
        Path, typer.Argument(metavar="RUN_A", help="a snapshot, or a run for its newest snapshot")
    ],
    right: Annotated[Path, typer.Argument(metavar="RUN_B", help="the other one")],
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Compare two snapshots: list tensors and values that differ, with the largest difference; exit code 1 if any."""
    from rankup.snapshots.diff import compare

    sides = opened(place(left, runs_root)), opened(place(right, runs_root))
    found = compare(*sides)
    console.print_json([vars(one) for one in found]) if as_json else print(
        "\n".join(differences(sides, found))
    )
    raise typer.Exit(1 if found else 0)


@app.command("export")
def export_command(
    directory: DirectoryArgument,
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="file to write: .safetensors, or any other name for torch.load"),
    ],
    part: Annotated[str, typer.Option(metavar="NAME", help="part of the state")] = "model",
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Write the model of a snapshot as a plain state_dict to one file. Of a run, the newest snapshot."""
    from rankup.snapshots.export import export

    entry, manifest = opened(place(directory, runs_root))
    count = export(entry, manifest, out, part)
    if as_json:
        console.print_json(
            {"snapshot": str(entry.path), "step": manifest.step, "out": str(out), "tensors": count}
        )
    else:
        print(f"{out}: {count} tensors of step {manifest.step}")
