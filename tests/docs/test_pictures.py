"""The picture of the README shows the commands of the README, and asks nobody for anything."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from pages import ROOT, commands

README = ROOT / "README.md"
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "tools" / "pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_two_of_each():
    names = [f"{what}-{how}.svg" for what in ("killed", "speed-up") for how in ("dark", "light")]
    assert [picture.name for picture in PICTURES] == names


@pytest.mark.parametrize("picture", PICTURES[2:], ids=lambda path: path.stem)
def test_the_words_of_the_speed_up_are_those_of_its_study(picture: Path):
    found = re.search(r"<title>(Speed-up against .*)</title>", picture.read_text())
    assert (
        found is not None
        and f'<img alt="{found[1]}" src="docs/pictures/speed-up-light.svg">' in README.read_text()
    )


@pytest.mark.parametrize("picture", PICTURES[:2], ids=lambda path: path.stem)
def test_it_shows_what_the_page_shows(picture: Path):
    pictures = tool()
    shown = [line for one in commands(README) for line in (f"$ {one.line}", *one.shown)]
    drawn = pictures.text_of(picture.read_text())
    assert len(drawn) == len(shown), "`make pictures` draws it anew"
    for line, expected in zip(drawn, shown, strict=True):
        assert pictures.masked(expected).fullmatch(line), (
            f"{line!r} for {expected!r}: `make pictures` draws it anew"
        )
    hashes = [line for line in drawn if re.match(r"[0-9a-f]{64} ", line)]
    assert len(hashes) == 2 and len(set(hashes)) == 1


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_it_fetches_nothing(picture: Path):
    text = re.sub(
        r'xmlns(:\w+)?="[^"]*"|<!DOCTYPE[^>]*>|<metadata>.*?</metadata>', "", picture.read_text(), flags=re.S
    )
    assert "http" not in text.replace("https://www.textualize.io", "")
