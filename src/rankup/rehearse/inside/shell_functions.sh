# Read by every bash of a rehearsal (BASH_ENV): what is a function or a builtin on a cluster, and not a command.
case ":$PATH:" in *":@bin@:"*) ;; *) export PATH="@bin@:$PATH" ;; esac
case ":${PYTHONPATH:-}:" in *":@hook@:"*) ;; *) export PYTHONPATH="@hook@${PYTHONPATH:+:$PYTHONPATH}" ;; esac
# A script may bring its whole environment to another host: there these are of that host.
[ -z "${RANKUP_REHEARSE_HOST:-}" ] || readonly RANKUP_REHEARSE_HOST RANKUP_REHEARSE_GROUP RANKUP_REHEARSE_PASS
module() {
  case ${1:-} in load | add) export LOADEDMODULES="${LOADEDMODULES:+$LOADEDMODULES:}${*:2}" ;; esac
  @bin@/module "$@"
}
ml() { @bin@/module "$@"; }
conda() { @bin@/conda "$@"; }
mamba() { @bin@/mamba "$@"; }
micromamba() { @bin@/micromamba "$@"; }
# An activated environment brings its own.
deactivate() { :; }
command_not_found_handle() { @bin@/unknown-command "$@"; }
