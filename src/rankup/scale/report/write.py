"""Everything into one folder: ``report.html``, ``figures/`` and ``tables/``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rankup.core.files import make_folder
from rankup.errors import RankupError
from rankup.scale.report.content import Content
from rankup.scale.report.figures.all_pictures import all_pictures
from rankup.scale.report.figures.draw import draw_all
from rankup.scale.report.page import page
from rankup.scale.report.sentences import summary
from rankup.scale.report.tables import all_tables


@dataclass(frozen=True)
class Written:
    """``page`` is ``report.html``; ``figures`` and ``tables`` are the names of what lies beside it."""

    page: Path
    figures: tuple[str, ...]
    tables: tuple[str, ...]
    summary: tuple[str, ...]


def write(content: Content, folder: Path) -> Written:
    """Write the report into ``folder``, over an older one. Raises RankupError if it is not writable."""
    make_folder(folder, mode=0o700, purpose="report directory")
    sentences = summary(content)
    drawn = draw_all(all_pictures(content))
    tables = all_tables(content)
    files: dict[str, bytes] = {
        f"figures/{one.picture.name}.{ending}": data for one in drawn for ending, data in one.files.items()
    }
    for table in tables:
        for ending, text in (("csv", table.csv()), ("md", table.markdown()), ("tex", table.latex())):
            files[f"tables/{table.name}.{ending}"] = text.encode()
    files["report.html"] = page(content, sentences, drawn, tables).encode()
    for name, data in files.items():
        path = folder / name
        make_folder(path.parent, mode=0o700, purpose="report directory")
        try:
            path.write_bytes(data)
        except OSError as error:
            raise RankupError(
                "unwritable-report",
                f"cannot write the report: {error.strerror}",
                context=str(path),
                hint="--out DIR writes it elsewhere",
            ) from error
    return Written(
        folder / "report.html",
        tuple(one.picture.name for one in drawn),
        tuple(table.name for table in tables),
        tuple(sentences),
    )
