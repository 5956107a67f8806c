"""Commands of rankup in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rankup.cli.app import main


def calling(*first: str) -> Callable[..., tuple[int, str, str]]:
    """``rankup FIRST …`` as a function of capsys or capfd and of the words that follow: exit code, stdout and stderr.

    Of a code that is no number, 1.
    """

    def call(capture: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
        code: object = 0
        try:
            main([*first, *map(str, words)])
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capture.readouterr()
        return code if isinstance(code, int) else 1, out, err

    return call
