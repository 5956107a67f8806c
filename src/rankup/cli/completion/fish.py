"""The completion script for fish, with a line of help beside each option."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.cli.completion.declared import FILE, FOLDER, RUN, SITE, Command, Option, builtin_sites, quoted

_FISH = """\
# Written by: rankup completion fish
function __rankup_at --description 'whether the command line is at this command of rankup'
    set -l words (commandline -opc | string match --invert -- '-*')[2..]
    set -l count (count $argv)
    test (count $words) -ge $count; or return 1
    test "$words[1..$count]" = "$argv"
end
function __rankup_needs_command
    set -l words (commandline -opc | string match --invert -- '-*')
    test (count $words) -eq (math 1 + (count $argv)); and begin
        test (count $argv) -eq 0; or test "$words[2]" = "$argv[1]"
    end
end
function __rankup_sites
    printf '%s\\n' BUILTIN
    set -l config $HOME/.config
    set -q XDG_CONFIG_HOME; and set config $XDG_CONFIG_HOME
    for dir in .rankup/sites (string split : -- "$RANKUP_SITES") $config/rankup/sites /etc/rankup/sites
        for file in $dir/*.toml
            string replace -r '.*/(.*)\\\\.toml$' '$1' -- $file
        end
    end
end
function __rankup_runs
    for file in runs/*/*/job.toml
        set -l parts (string split / -- $file)
        printf '%s\\n' $parts[2] $parts[3]
    end | sort -u
end
complete -c rankup -f
complete -c rankup -n __rankup_needs_command -s h -l help -d 'show all commands'
complete -c rankup -n __rankup_needs_command -l version -d 'show the version'
complete -c rankup -n __rankup_needs_command -l debug -d 'show the traceback of an error'
"""
_FISH_VALUE = {FOLDER: "(__fish_complete_directories)", SITE: "(__rankup_sites)", RUN: "(__rankup_runs)"}


def script(commands: list[Command]) -> str:
    lines = [_FISH.replace("BUILTIN", builtin_sites()).rstrip("\n")]
    for command in commands:
        *parents, name = command.path.split()
        needs = quoted(" ".join(["__rankup_needs_command", *parents]))
        lines.append(f"complete -c rankup -n {needs} -a {name} -d {quoted(command.help)}")
        if command.children:
            continue
        at = quoted(f"__rankup_at {command.path}")
        lines += [
            " ".join([f"complete -c rankup -n {at}", *_fish_option(option), "-d", quoted(option.help)])
            for option in command.options
        ]
        if command.argument == FILE:
            lines.append(f"complete -c rankup -n {at} -F")
        elif command.argument:
            lines.append(f"complete -c rankup -n {at} {_fish_values(command.argument)}")
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> Iterator[str]:
    for name in option.names:
        yield f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
    if option.value is not None:
        yield "-r -F" if option.value == FILE else "-x"
        if option.value and option.value != FILE:
            yield _fish_values(option.value)


def _fish_values(value: str) -> str:
    return f"-a {quoted(_FISH_VALUE.get(value, value))}"
