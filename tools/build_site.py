"""The documentation's site from docs/ and zensical.toml: what ``make site`` does.

    python tools/build_site.py [FOLDER]          into build/site, or into FOLDER

Zensical builds a copy, so that the same Markdown is right on GitHub: in the copy, links that leave docs/ lead to the
repository, and a pattern in the navigation is the list of its pages. A broken link, a missing anchor, and a page that
is not in the navigation fail the build. The Markdown of each page is beside it, and ``llms.txt`` lists it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tomllib
from code_pages import PAGES
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"
REPOSITORY = "https://github.com/rankup/rankup"

_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")
_PATTERN = re.compile(r'^ *"(?P<pattern>[^"]*\*[^"]*)",\n', re.M)
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_MOST_HEADINGS = 40  # of a page whose list of contents is of use
_NO_CONTENTS = "---\nhide:\n  - toc\n---\n\n"
_SHORT = 40  # characters: a first sentence that says less ("Problem.") takes the next one with it


def build(site: Path, root: Path = ROOT, generated: Mapping[str, Callable[[], str]] = PAGES) -> None:
    """Write the site of ``root`` to the folder ``site``. Raises SystemExit if a link or the navigation is wrong.

    ``generated`` are the pages that are not in docs/.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        docs = copy / "docs"
        shutil.copytree(root / "docs", docs)
        for name, write in generated.items():
            (docs / name).write_text(write())
        text = configuration((root / "zensical.toml").read_text(), docs)
        (copy / "zensical.toml").write_text(text)
        project = tomllib.loads(text)["project"]
        refuse_unlisted(docs, {page for _, page in pages(project["nav"])})
        listed = llms(project, docs)
        for page in docs.rglob("*.md"):
            written = outside_links(page.read_text(), page.relative_to(copy), root)
            page.write_text((_NO_CONTENTS if written.count("\n## ") > _MOST_HEADINGS else "") + written)
        run_zensical(copy)
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(copy / project["site_dir"], site)
        for page in docs.rglob("*.md"):
            shutil.copy(page, site / page.relative_to(docs))
    (site / "llms.txt").write_text(listed)


def configuration(text: str, docs: Path) -> str:
    """``text`` of zensical.toml with the pages in place of each pattern in its navigation."""

    def expanded(match: re.Match[str]) -> str:
        names = [path.relative_to(docs).as_posix() for path in sorted(docs.glob(match["pattern"]))]
        return "".join(f'"{name}",\n' for name in names)

    return _PATTERN.sub(expanded, text)


def pages(navigation: list[Any], section: str = "") -> Iterator[tuple[str, str]]:
    """(top section, page) of everything that the navigation holds, in its order."""
    for entry in navigation:
        if isinstance(entry, str):
            yield section, entry
            continue
        for title, inner in entry.items():
            yield from pages(inner if isinstance(inner, list) else [inner], section or title)


def refuse_unlisted(docs: Path, listed: set[str]) -> None:
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    wrong = [f"{name} is not in the navigation" for name in sorted(there - listed)]
    wrong += [f"{name} is in the navigation, and does not exist" for name in sorted(listed - there)]
    if wrong:
        raise SystemExit("zensical.toml: " + "\n".join(wrong))


def outside_links(text: str, page: Path, root: Path) -> str:
    """``text`` of ``page``, a path below ``root``, with the repository's address in place of paths that leave docs/."""

    def changed(match: re.Match[str]) -> str:
        path = (root / page.parent / match[1]).resolve()
        if path.is_relative_to(root / "docs"):
            return match[0]
        if not path.exists():
            raise SystemExit(f"{page}: {match[1]} does not exist")
        kind = "tree" if path.is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/main/{path.relative_to(root).as_posix()}"

    return _LINK.sub(changed, text)


def run_zensical(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        said, _, _ = _COLOURS.sub("", done.stdout + done.stderr).partition("Traceback")
        raise SystemExit(f"docs/: {said}")


def llms(project: dict[str, Any], docs: Path) -> str:
    """``llms.txt``: the Markdown of each page under its top section, with the beginning of its text."""
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}"]
    last = ""
    for section, page in pages(project["nav"]):
        if section != last:
            lines += ["", f"## {section}", ""]
            last = section
        title, first = head_of((docs / page).read_text())
        lines.append(f"- [{title}]({page}): {first}")
    return "\n".join(lines) + "\n"


def head_of(text: str) -> tuple[str, str]:
    """A page's title, and the first sentence of its first paragraph, both without markup."""
    tokens = MarkdownIt().parse(text)
    starts = {
        kind: next(i for i, token in enumerate(tokens) if token.type == kind and token.level == 0)
        for kind in ("heading_open", "paragraph_open")
    }
    title, paragraph = (
        "".join(" " if child.type == "softbreak" else child.content for child in tokens[i + 1].children or ())
        for i in starts.values()
    )
    ends = (match.start() for match in re.finditer(r"(?<=[.:?])\s(?=[A-Z`])", paragraph))
    return title, paragraph[: next((end for end in ends if end > _SHORT), None)].rstrip(":")


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SITE
    build(folder)
    print(f"wrote {folder}")
