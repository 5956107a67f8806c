"""The completion script for bash."""

from __future__ import annotations

from rankup.cli.completion.declared import Command, builtin_sites

# Sites are files NAME.toml in the places of rankup.sites.lookup; runs are runs/NAME/ID.
_LISTS = """\
_rankup_sites() {
    local dir file IFS=:
    printf '%s\\n' BUILTIN
    for dir in .rankup/sites ${RANKUP_SITES-} "${XDG_CONFIG_HOME:-$HOME/.config}/rankup/sites" /etc/rankup/sites; do
        for file in "$dir"/*.toml; do
            [ -f "$file" ] && file=${file##*/} && printf '%s\\n' "${file%.toml}"
        done
    done
}
_rankup_runs() {
    local dir
    for dir in runs/*/*/; do
        [ -f "${dir}job.toml" ] && dir=${dir#runs/} && dir=${dir%/} && printf '%s\\n' "${dir%%/*}" "${dir#*/}"
    done | sort -u
}
"""

_BASH = """\
# Written by: rankup completion bash
LISTS
_rankup() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path=${COMP_WORDS[1]} first=2
    local options= valued= argument= script= value= i
    COMPREPLY=()
    if [ "$cur" = = ]; then cur= ; elif [ "$prev" = = ]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W 'ALL --help --version --debug' -- "$cur"))
        return
    fi
    case $path in
        GROUPS)
            [ "$COMP_CWORD" -gt 2 ] && path="$path ${COMP_WORDS[2]}" && first=3 ;;
    esac
    case $path in
COMMANDS
        *) return ;;
    esac
    for ((i = first; i < COMP_CWORD; i++)); do  # a script's own arguments are files, as far as we know
        case ${COMP_WORDS[i]} in
            -*) [[ " $valued " == *" ${COMP_WORDS[i]} "* ]] && ((i++)) ;;
            =) ((i++)) ;;
            *) [ "$script" ] && { COMPREPLY=($(compgen -f -- "$cur")); return; } ;;
        esac
    done
    case "$path $prev" in
VALUES
    esac
    if [[ $cur == -* && ! $value ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
        return
    fi
    [[ " $valued " == *" $prev "* ]] || value=$argument
    case $value in
        @files) COMPREPLY=($(compgen -f -- "$cur")) ;;
        @folders) COMPREPLY=($(compgen -d -- "$cur")) ;;
        @sites) COMPREPLY=($(compgen -W "$(_rankup_sites)" -- "$cur")) ;;
        @runs) COMPREPLY=($(compgen -W "$(_rankup_runs)" -- "$cur") $(compgen -d -- "$cur")) ;;
        *) COMPREPLY=($(compgen -W "$value" -- "$cur")) ;;
    esac
}
complete -o filenames -F _rankup rankup
"""


def script(commands: list[Command]) -> str:
    blocks, values = [], []
    for command in commands:
        names = [name for option in command.options for name in option.names]
        valued = [name for option in command.options if option.value is not None for name in option.names]
        argument = " ".join(name for name, _ in command.children) or command.argument
        blocks.append(
            f'        {_pattern(command.path)})\n            options="{" ".join(names)}"'
            f'\n            valued="{" ".join(valued)}"'
            f'\n            argument="{argument}" script={"yes" if command.script else ""} ;;'
        )
        for option in command.options:
            if option.value:
                patterns = "|".join(_pattern(f"{command.path} {name}") for name in option.names)
                values.append(f'        {patterns}) value="{option.value}" ;;')
    text = _BASH.replace("LISTS", site_and_run_names().rstrip())
    text = text.replace("ALL", " ".join(c.path for c in commands if " " not in c.path))
    text = text.replace("GROUPS", "|".join(c.path for c in commands if c.children))
    return text.replace("COMMANDS", "\n".join(blocks)).replace("VALUES", "\n".join(values))


def _pattern(text: str) -> str:
    return text.replace(" ", "\\ ")


def site_and_run_names() -> str:
    """The functions ``_rankup_sites`` and ``_rankup_runs``, for zsh as well."""
    return _LISTS.replace("BUILTIN", builtin_sites())
