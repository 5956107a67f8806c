"""``rankup sites``: list, show and check the profiles of clusters, and write one for another cluster."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.table import print_table
from rankup.cli.site_survey import survey
from rankup.core.files import make_folder, write_atomic
from rankup.core.units import parse_duration
from rankup.errors import RankupError
from rankup.resolve.precedence import check_defaults
from rankup.sites import bad_nodes
from rankup.sites.comparison import Difference, compare, patch
from rankup.sites.discovery import profile
from rankup.sites.lookup import PROJECT, find_site, lineage, list_sites, load_site, places, site_file
from rankup.sites.site import Site

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="List, show and check the profiles of clusters, and write one for yours.",
)

NameArgument = Annotated[str, typer.Argument(metavar="SITE", help="name of the profile")]


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List every profile that --site takes, with its file, and when its oldest value was read."""
    rows = [
        {"name": name, "scheduler": "", "read": "", "title": f"invalid: {site.message}", "file": str(path)}
        if isinstance(site, RankupError)
        else {
            "name": name,
            "scheduler": site.scheduler,
            "read": site.source.oldest,
            "title": site.title,
            "file": str(path),
        }
        for name, path, site in list_sites(os.environ, Path.cwd())
    ]
    if as_json:
        console.print_json(rows)
        return
    head = ("site", "scheduler", "read", "title", "file")
    print_table(head, [tuple(row.values()) for row in rows], fold=("title", "file"))


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
    """Check that profiles are valid, and that one agrees with the cluster of this machine.

    A named profile is compared with queues, nodes, modules, containers and files that are seen here. If something
    differs, the command prints a profile that corrects it. The exit code is 1 if a profile is invalid or differs.
    """
    where = places(os.environ, Path.cwd())
    if which.endswith(".toml"):
        files = {Path(which).stem: Path(which).absolute()}
    elif which:
        files = {which: site_file(which, where)}
    else:
        files = {name: path for name, path, _ in list_sites(os.environ, Path.cwd())}
    wrong = {name: _what_is_wrong(path, where) for name, path in files.items()}
    (path,) = files.values() if which and not any(wrong.values()) else (None,)
    differs = _Comparison(load_site(path, where)) if path else None
    if as_json:
        said = {name: found.as_dict() if found else None for name, found in wrong.items()}
        console.print_json(said if differs is None else {**said, "here": differs.as_dict()})
    else:
        for name, found in wrong.items():
            print("\n".join([f"{name}: {'invalid' if found else 'OK'}", *(found.lines() if found else [])]))
        if differs is not None:
            print("\n".join(differs.lines()))
    raise typer.Exit(1 if any(wrong.values()) or (differs is not None and differs.found) else 0)


class _Comparison:
    """A profile beside the machine that this runs on, if a scheduler answers here."""

    def __init__(self, site: Site) -> None:
        self.source = site.source
        self.found: list[Difference] = []
        self.patch = self.why_not = ""
        try:
            there = survey(os.environ)
        except RankupError as error:
            self.why_not = error.message
            return
        self.who = there.seen.source
        if there.scheduler == "local" != site.scheduler:
            self.why_not = "this machine has neither sinfo nor qstat"
            return
        self.found = compare(site, there, os.path.exists)
        self.patch = patch(site, there, self.found) if self.found else ""

    def as_dict(self) -> dict[str, object]:
        differences = [{**asdict(one), "place": one.place} for one in self.found]
        return {"differences": differences, "patch": self.patch, "not_compared": self.why_not}

    def lines(self) -> list[str]:
        if self.why_not:
            return [f"not compared with a cluster: {self.why_not}"]
        if not self.found:
            return [f"nothing differs from what this cluster says ({self.who})"]
        head = f"this cluster says otherwise ({self.who}):"
        tail = ["", f"# {PROJECT}/NAME.toml, for what is right here:", self.patch.rstrip()]
        return [head, *(f"  {one.line(self.source)}" for one in self.found), *tail]


def _what_is_wrong(path: Path, where: list[Path]) -> RankupError | None:
    try:
        check_defaults(load_site(path, where))
    except RankupError as error:
        return error
    return None


@app.command("bad-nodes")
def bad_nodes_command(
    which: Annotated[
        str,
        typer.Argument(metavar="[SITE|FILE]", help="a profile that names the file (bad_nodes), or the file"),
    ] = "",
    add: Annotated[
        list[str] | None, typer.Option("--add", metavar="NODE", help="note this node as bad; several times")
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="NODE", help="the node is good again; several times"),
    ] = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="with --add")] = "",
    lasts: Annotated[str, typer.Option("--for", metavar="TIME", help="with --add: how long")] = "7d",
    doctor: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="note the nodes that `rankup doctor --out FILE` found broken"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the nodes that the team has noted as bad; --add and --remove change that.

    A job of SLURM asks for other nodes (--exclude). PBS has no such option: there the job's log warns.
    """
    site = which or os.environ.get("RANKUP_SITE", "")
    path = Path(which) if "/" in which else bad_nodes.file_of(find_site(site, os.environ, Path.cwd()))
    if remove:
        bad_nodes.remove(path, remove)
    if add:
        bad_nodes.add(path, add, why, _seconds(lasts))
    if doctor is not None and (found := bad_nodes.found_by_doctor(doctor)):
        for host, code in found.items():
            bad_nodes.add(path, [host], f"rankup doctor: {code}", _seconds(lasts))
    nodes = bad_nodes.read(path)
    if as_json:
        console.print_json([asdict(node) for node in nodes])
    elif nodes:
        until = {node: time.strftime("%Y-%m-%d %H:%M", time.localtime(node.until)) for node in nodes}
        rows = [(node.host, until[node], node.by, node.why) for node in nodes]
        print_table(("node", "until", "by", "why"), rows, fold=("why",))
    else:
        print(f"no bad nodes in {path}")


def _seconds(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise RankupError("bad-duration", f"--for {text}: {error}") from None


@app.command("discover")
def discover(
    name: NameArgument,
    directory: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="directory to write SITE.toml to")
    ] = PROJECT,
    as_json: JsonOption = False,
) -> None:
    """Write a profile of this cluster: its scheduler, queues, nodes, modules, containers, network and file systems."""
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
    text = profile(name, survey(os.environ))
    make_folder(directory, purpose="directory of profiles")
    write_atomic(path, text)
    if as_json:
        console.print_json({"name": name, "file": str(path.absolute())})
    else:
        print(f"wrote {path}\nread it, fill in what is missing, then run: rankup sites check {name}")
