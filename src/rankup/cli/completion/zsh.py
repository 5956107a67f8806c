"""The completion script for zsh, with a line of help beside each option."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.cli.completion.bash import site_and_run_names
from rankup.cli.completion.declared import FILE, FOLDER, RUN, SITE, Command, Option, quoted

_ZSH_LISTS = """\
_rankup_value_file() { _files }
_rankup_value_folder() { _files -/ }
_rankup_value_site() { local -a names; names=(${(f)"$(_rankup_sites)"}); compadd -a names }
_rankup_value_run() { local -a names; names=(${(f)"$(_rankup_runs)"}); compadd -a names; _files -/ }
"""
_ZSH_VALUE = {
    FILE: "_rankup_value_file",
    FOLDER: "_rankup_value_folder",
    SITE: "_rankup_value_site",
    RUN: "_rankup_value_run",
}


def script(commands: list[Command]) -> str:
    lists = site_and_run_names().replace(
        "for dir in ", "setopt localoptions nullglob shwordsplit\n    for dir in "
    )
    lines = ["#compdef rankup", "# Written by: rankup completion zsh", lists, _ZSH_LISTS]
    for command in commands:
        lines += [f"_rankup_command_{_identifier(command.path)}() {{"]
        if command.children:
            lines += _zsh_choice(command.path, command.children)
        else:
            lines.append("    _arguments -s \\")
            lines += [
                f"        {quoted(spec)} \\" for option in command.options for spec in _zsh_option(option)
            ]
            if command.script:
                lines.append(f"        '(-)1: :{_zsh_value(command.argument)}' '*:: :_files'")
            else:
                lines.append(f"        '*: :{_zsh_value(command.argument)}'")
        lines.append("}")
    top = tuple((command.path, command.help) for command in commands if " " not in command.path)
    lines += ["_rankup() {", *_zsh_choice("", top), "}"]
    # Found in fpath, the file is the function's first call; sourced, it declares it.
    lines.append('if [ "$funcstack[1]" = _rankup ]; then _rankup "$@"; else compdef _rankup rankup; fi')
    return "\n".join(lines) + "\n"


def _zsh_choice(path: str, children: tuple[tuple[str, str], ...]) -> list[str]:
    """Complete the name of a command, then go on with that command's function."""
    described = " ".join(quoted(f"{name}:{text}".replace("`", "")) for name, text in children)
    prefix = f"_rankup_command_{_identifier(path)}_" if path else "_rankup_command_"
    return [
        "    local curcontext=$curcontext state line",
        f"    local -a names=({described})",
        "    _arguments -C '(- *)'{-h,--help}'[show the page of help]' '1: :->name' '*:: :->rest'",
        "    case $state in",
        "        name) _describe command names ;;",
        f'        rest) (( $+functions[{prefix}$line[1]] )) && "{prefix}$line[1]" ;;',
        "    esac",
    ]


def _zsh_option(option: Option) -> Iterator[str]:
    text = re.sub(r"([\[\]:\\])", r"\\\1", option.help)
    for name in option.names:
        value = "" if option.value is None else f": :{_zsh_value(option.value)}"
        yield f"*{name}[{text}]{value}"


def _zsh_value(value: str) -> str:
    return _ZSH_VALUE.get(value, f"({value})" if value else " ")


def _identifier(path: str) -> str:
    return path.replace(" ", "_")
