# If the program's Python has rankup, a hook in torch leaves a file for each rank that takes an optimizer's step without
# a process group. (watch_ranks counts them.)
add_torch_hook() { # PYTHON
  local hook
  hook=$(cd / && "$1" -c 'from rankup.run.separate_models import HOOK; print(HOOK)' 2>/dev/null) || return 0
  export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$hook
}
