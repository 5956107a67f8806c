"""Profiles of clusters: where they are looked for, how one extends another, and which one is meant.

The first place that has ``NAME.toml`` wins: the project's ``.rankup/sites``, the directories in ``$RANKUP_SITES``,
``~/.config/rankup/sites``, the centre's ``/etc/rankup/sites``, and the built-in ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from rankup.core import shell
from rankup.core.registry import target_of
from rankup.core.toml_file import read_toml
from rankup.errors import RankupError
from rankup.findings.error import FindingsError
from rankup.findings.finding import Finding, Severity
from rankup.sites.site import WHEN, Site
from rankup.spec.job_values import check_job_values
from rankup.spec.jobspec import JobSpec
from rankup.spec.validation import check_keys, describe_errors, invalid

BUILT_IN = Path(__file__).parent / "profiles"
PROJECT = Path(".rankup", "sites")
CENTRE = Path("/etc/rankup/sites")
_CLIENTS = {"slurm": "sbatch", "pbs": "qsub"}


def places(env: Mapping[str, str], folder: Path) -> list[Path]:
    """The directories with profiles, in the order in which they are looked through. ``folder`` is the project's."""
    listed = [Path(text) for text in env.get("RANKUP_SITES", "").split(":") if text]
    config = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "~")).expanduser() / ".config")
    return [folder / PROJECT, *listed, config / "rankup" / "sites", CENTRE, BUILT_IN]


def list_sites(env: Mapping[str, str], folder: Path) -> list[tuple[str, Path, Site | RankupError]]:
    """Every profile that can be chosen: name, file, and what it says, or what is wrong with it."""
    found: list[tuple[str, Path, Site | RankupError]] = []
    for name, path in _files(places(env, folder)).items():
        try:
            found.append((name, path, find_site(name, env, folder)))
        except RankupError as error:
            found.append((name, path, error))
    return found


def find_site(name: str, env: Mapping[str, str], folder: Path) -> Site:
    """The profile called ``name``. Raises ``RankupError`` where there is none, or where it is wrong."""
    where = places(env, folder)
    return load_site(site_file(name, where), where)


def site_file(name: str, where: list[Path]) -> Path:
    """The file of the profile called ``name`` in the first of these directories that has one."""
    files = {known: str(path) for known, path in _files(where).items()}
    return Path(target_of("site", name, files))


def load_site(path: Path, where: list[Path]) -> Site:
    """The profile in ``path``; what it extends is looked for in ``where``."""
    files = lineage(path, where)
    merged: dict[str, Any] = {}
    for file in reversed(files):
        tables = _read(file)
        own, inherited = tables.get("notes"), merged.get("notes")
        merged = _over(merged, tables)
        if isinstance(own, list) and isinstance(inherited, list):  # what holds for the parent holds here
            merged["notes"] = [*own, *inherited]
    try:
        return Site.model_validate({**merged, "name": path.stem})
    except ValidationError as error:
        wrong = [
            Finding("bad-profile", Severity.ERROR, invalid(key, why), place=_file_with(key, files), fix=hint)
            for key, why, hint in describe_errors(error)
        ]
        raise FindingsError(wrong) from error


def lineage(path: Path, where: list[Path]) -> list[Path]:
    """``path``, the profile that it extends, the one that that one extends, …

    A profile may extend its namesake in a later place: so a centre or a project adapts a built-in one.
    """
    files = [path]
    while name := _read(files[-1]).get("extends"):
        parent = files[-1].parent
        namesake = name == files[-1].stem and parent in where
        said = f"extends in {files[-1]}"
        try:
            extended = site_file(name, where[where.index(parent) + 1 :] if namesake else where)
        except RankupError as error:
            raise RankupError(error.code, error.message, context=said, hint=error.hint) from error
        if extended in files:
            raise RankupError("profile-circle", f"the profile {name!r} extends itself", context=said)
        files.append(extended)
    return files


def choose_site(
    asked: str | None, env: Mapping[str, str], folder: Path, *, origin: str = "flag"
) -> tuple[Site, str]:
    """The site that is meant and why: the one ``asked`` for (by ``origin``), $RANKUP_SITE, or what is on PATH."""
    if asked:
        return find_site(asked, env, folder), origin
    if env.get("RANKUP_SITE"):
        return find_site(env["RANKUP_SITE"], env, folder), "$RANKUP_SITE"
    path = env.get("PATH", "")
    found = {name: command for name, command in _CLIENTS.items() if shutil.which(command, path=path)}
    if not found:
        return find_site("local", env, folder), "no scheduler on PATH"
    if len(found) > 1 and not _slurm_answers(env):
        del found["slurm"]
    name = next(iter(found))
    return find_site(name, env, folder), f"{found[name]} is on PATH"


def _slurm_answers(env: Mapping[str, str]) -> bool:
    """SLURM may be installed and unused beside PBS; and its own qsub is no PBS."""
    done = shell.run(["scontrol", "ping"], env=dict(env), timeout=10)
    return "UP" in done.out.split()


def _files(where: list[Path]) -> dict[str, Path]:
    """Names to files; of a name's files the first."""
    files: dict[str, Path] = {}
    for place in where:
        for path in sorted(place.glob("*.toml")):
            files.setdefault(path.stem, path)
    return files


def _read(path: Path) -> dict[str, Any]:
    """One file's tables, its keys checked; the values of the merged whole are checked by ``Site``."""
    tables = read_toml(path, "profile")
    known = [key for key in Site.model_fields if key != "name"]  # a site is called what its file is called
    check_keys(tables, ["extends", *known], where=str(path))
    if not isinstance(tables.get("extends", ""), str):
        raise RankupError(
            "bad-profile", "'extends' must be a name", context=str(path), hint='extends = "olivia"'
        )
    check_keys(tables.get("required", []), JobSpec.model_fields, where=f"required in {path}")
    for key, field in Site.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) and key in tables:
            check_keys(_table(tables, key, path), field.annotation.model_fields, where=f"[{key}] in {path}")
    when = _table(tables, "when", path)
    check_keys(when, WHEN, where=f"[when] in {path}")
    for name, values in [("defaults", _table(tables, "defaults", path))] + [
        (f"when.{key}", _table(when, key, path)) for key in when
    ]:
        # What a condition looks at cannot hang on that condition.
        decided = ("command", "folder", *(("nodes", "gpus_per_node") if name != "defaults" else ()))
        check_keys(values, [k for k in JobSpec.model_fields if k not in decided], where=f"[{name}] in {path}")
        check_job_values(values, where=f"[{name}] in {path}")
    return tables


def _table(tables: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    table = tables.get(key, {})
    if not isinstance(table, dict):
        raise RankupError("bad-profile", f"{key!r} must be a table", context=str(path), hint=f"[{key}]")
    return table


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """``above`` over ``below``: tables are merged, everything else is replaced."""
    merged = {**below, **above}
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            merged[key] = _over(below[key], value)
    merged.pop("extends", None)
    return merged


def _file_with(key: str, files: list[Path]) -> str:
    """Which of ``files`` says ``key`` (dotted): the first that does."""
    for file in files:
        table: Any = read_toml(file, "profile")
        for part in key.split("."):
            table = table.get(part) if isinstance(table, dict) else None
        if table is not None:
            return str(file)
    return str(files[0])
