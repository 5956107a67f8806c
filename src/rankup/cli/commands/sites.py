"""``rankup sites``: list, show and check the profiles of clusters, and write one for another cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.table import print_table
from rankup.cli.site_survey import survey
from rankup.core.files import make_folder, write_atomic
from rankup.errors import RankupError
from rankup.resolve.precedence import check_defaults
from rankup.sites.lookup import PROJECT, find_site, lineage, list_sites, load_site, places, site_file

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="List, show and check the profiles of clusters, and write one for yours.",
)

NameArgument = Annotated[str, typer.Argument(metavar="SITE", help="name of the profile")]


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List every profile that --site takes, with its file."""
    rows = [
        {"name": name, "scheduler": "", "title": f"invalid: {site.message}", "file": str(path)}
        if isinstance(site, RankupError)
        else {"name": name, "scheduler": site.scheduler, "title": site.title, "file": str(path)}
        for name, path, site in list_sites(os.environ, Path.cwd())
    ]
    if as_json:
        console.print_json(rows)
        return
    head = ("site", "scheduler", "title", "file")
    print_table(
        head, [(r["name"], r["scheduler"], r["title"], r["file"]) for r in rows], fold=("title", "file")
    )


@app.command("show")
def show(name: NameArgument, as_json: JsonOption = False) -> None:
    """Print the file of a profile, comments included; with --json merged with what it extends."""
    folder = Path.cwd()
    if as_json:
        console.print_json(find_site(name, os.environ, folder).model_dump())
        return
    where = places(os.environ, folder)
    for path in lineage(site_file(name, where), where):
        print(f"# {path}\n{path.read_text()}")


@app.command("check")
def check(
    which: Annotated[
        str, typer.Argument(metavar="[SITE|FILE]", help="name or file of a profile; default: all")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Check that profiles are valid and that a job can use their defaults; exit code 1 if not."""
    where = places(os.environ, Path.cwd())
    if which.endswith(".toml"):
        files = {Path(which).stem: Path(which).absolute()}
    elif which:
        files = {which: site_file(which, where)}
    else:
        files = {name: path for name, path, _ in list_sites(os.environ, Path.cwd())}
    wrong = {name: _what_is_wrong(path, where) for name, path in files.items()}
    if as_json:
        console.print_json({name: found.as_dict() if found else None for name, found in wrong.items()})
    else:
        for name, found in wrong.items():
            print("\n".join([f"{name}: {'invalid' if found else 'OK'}", *(found.lines() if found else [])]))
    raise typer.Exit(1 if any(wrong.values()) else 0)


def _what_is_wrong(path: Path, where: list[Path]) -> RankupError | None:
    try:
        check_defaults(load_site(path, where))
    except RankupError as error:
        return error
    return None


@app.command("new")
def new(
    name: NameArgument,
    directory: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="directory to write SITE.toml to")
    ] = PROJECT,
    as_json: JsonOption = False,
) -> None:
    """Write a profile of this cluster from its scheduler, queues, nodes and GPUs."""
    path = directory / f"{name}.toml"
    if Path(name).name != name or name.startswith((".", "-")):
        raise RankupError(
            "bad-site-name", f"invalid name of a site: {name!r}", hint="use a word, e.g. mycluster"
        )
    if path.exists():
        raise RankupError(
            "profile-exists",
            f"the profile {str(path)!r} exists already",
            hint="choose another name, or another directory with --to",
        )
    text = survey(name, os.environ)
    make_folder(directory, purpose="directory of profiles")
    write_atomic(path, text)
    if as_json:
        console.print_json({"name": name, "file": str(path.absolute())})
    else:
        print(f"wrote {path}\nread it, fill in what is missing, then run: rankup sites check {name}")
