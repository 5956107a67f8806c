"""Draws the pictures of the README from a real run of the commands that the README shows, and from a real study.

    python tools/pictures.py [killed] [speed-up]

It runs them in a copy of ``examples/tutorial`` and draws what they print, line by line as the README shows it, into
``docs/pictures/killed-light.svg`` and ``killed-dark.svg``. In a browser the lines appear one after another. The study
is ``STUDY``, which refuses a busy machine; its figure becomes ``speed-up-light.svg`` and ``speed-up-dark.svg``, and the
README gets its sentence.
"""

from __future__ import annotations

import html
import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from pages import SCRIPTS, commands, run_page  # noqa: E402

README = ROOT / "README.md"
FOLDER = ROOT / "docs" / "pictures"
KILL = "kill -9 $!"
WAIT = (
    "until grep -q 'epoch 8:' runs/killed/*/logs/job.log 2>/dev/null; do sleep 0.1; done; kill -9 $!; wait $!"
)
STUDY = (
    *("scale", "mnist-cnn", "--data", "digits", "--epochs", "5", "--global-batch", "256"),
    *("--grid", "nproc=1,2", "--threads", "1", "--repeats", "5"),
)
MASK = re.compile(r"\d\.\d{6}|[0-9a-f]{64}|step-\d+: epoch \d+, step \d+")
COLUMNS, SECONDS_PER_LINE = 88, 0.35
LIGHT = TerminalTheme(
    (250, 250, 250),
    (36, 41, 46),
    [
        *((36, 41, 46), (200, 40, 41), (46, 125, 50), (160, 110, 0)),
        *((3, 102, 214), (111, 66, 193), (0, 121, 130), (106, 115, 125)),
    ],
)


def masked(line: str) -> re.Pattern[str]:
    """Matches the line with other numbers and with anything in place of its dots."""
    parts = (re.escape(part) for part in re.split(r"…", MASK.sub("…", line)))
    return re.compile(".*".join(parts))


def lines_of_a_run() -> list[str]:
    """What the README shows, with the numbers of a run here."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "tutorial")
        shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__", "runs"))
        found = []
        ran = run_page(README, folder, {KILL: WAIT})
        for place, (command, _, own) in enumerate(ran):
            # What runs behind prints while the next command waits.
            printed = own + ran[place + 1][2] if command.line.endswith("&") else own
            found.append(f"$ {command.line}")
            for shown in command.shown:
                if shown == "…":
                    found.append(shown)
                    continue
                pattern = masked(shown)
                real = next((line for line in printed.splitlines() if pattern.fullmatch(line)), None)
                if real is None:
                    sys.exit(f"{command.line} did not print {shown!r}, but\n{printed}")
                found.append(real if len(real) <= COLUMNS else shown)
        return found


def drawn(lines: list[str], theme: TerminalTheme) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines:
        style = "bold" if line.startswith("$") else ("cyan" if "resumed" in line else "")
        if re.match(r"[0-9a-f]{64}", line):
            style = "green"
        console.print(Text(line, style=style), soft_wrap=True)
    svg = console.export_svg(title="rankup", theme=theme, unique_id="killed")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.S)  # nothing is fetched from another host
    return animated(re.sub(r"[ \t]+$", "", svg, flags=re.M), len(lines))


def animated(svg: str, count: int) -> str:
    rules = "\n".join(
        f'    [clip-path="url(#killed-line-{number})"] {{ animation-delay: {number * SECONDS_PER_LINE:.2f}s }}'
        for number in range(count)
    )
    style = (
        "@keyframes appear { from { opacity: 0 } to { opacity: 1 } }\n"
        "    @media (prefers-reduced-motion: no-preference) {\n"
        '    [clip-path^="url(#killed-line"] { animation: appear 0.1s linear both }\n'
        f"{rules}\n    }}\n    "
    )
    return svg.replace("</style>", f"{style}</style>", 1)


def text_of(svg: str) -> list[str]:
    """The lines of a drawn picture."""
    found: dict[int, str] = {}
    for number, text in re.findall(r'clip-path="url\(#killed-line-(\d+)\)">(.*?)</text>', svg):
        found[int(number)] = found.get(int(number), "") + html.unescape(text).replace("\xa0", " ")
    return [found[number].rstrip() for number in sorted(found)]


def speed_up() -> None:
    """The figure of a study, for white and for black pages, and its sentence in the README."""
    from rankup.scale.report.figures.picture import DARK

    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([sys.executable, "-m", "rankup", *STUDY], cwd=scratch)
        if done.returncode:
            sys.exit("the study has no ratio")
        (report,) = Path(scratch).glob("runs/*/*/report")
        svg = (report / "figures" / "speed-up.svg").read_text()
        page = (report / "report.html").read_text()
    found = re.search(r"Speed-up against [^.<]*(?:\.\d[^.<]*)*\.", page)
    assert found is not None
    sentence = found[0]
    svg = re.sub(r"(<svg [^>]*>)", rf"\1\n <title>{sentence}</title>", svg, count=1)
    svg = re.sub(r"[ \t]+$", "", svg, flags=re.M)
    (FOLDER / "speed-up-light.svg").write_text(svg)
    dark = re.sub("|".join(DARK), lambda colour: DARK[colour[0]], svg)
    (FOLDER / "speed-up-dark.svg").write_text(dark)
    readme = re.sub(
        r'alt="[^"]*"( src="docs/pictures/speed-up-light.svg")', rf'alt="{sentence}"\1', README.read_text()
    )
    README.write_text(readme)
    print(sentence)


def killed() -> None:
    lines = lines_of_a_run()
    for name, theme in (("light", LIGHT), ("dark", DIMMED_MONOKAI)):
        (FOLDER / f"killed-{name}.svg").write_text(drawn(lines, theme))
    print(f"{len(lines)} lines of {len(commands(README))} commands drawn")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    wanted = sys.argv[1:] or ["killed", "speed-up"]
    if "killed" in wanted:
        killed()
    if "speed-up" in wanted:
        speed_up()


if __name__ == "__main__":
    main()
