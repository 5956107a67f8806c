# ---- Was a node dead at the launch, or lost from a job that has spare ones? ----------------------------------------
# SLURM requeues a job that loses a node, if it has no spare one. It has not noticed yet if srun can start nothing there.
find_lost_nodes() {
  local host failed='Task launch for .* failed on node'
  [ -z "${USED:-}" ] || failed+='|Node failure on'
  lost=''
  if [ "$code" -eq 0 ] || [ -n "$called$terminated" ] || [ -e "$RUN/CANCELLED" ]; then return; fi
  lost=$(tail -c "+$((log_began + 1))" "$log_file" |
    sed -nE "s/^srun: error: ($failed) ([^ :]+).*/\2/p" |
    while read -r host; do scontrol show hostnames "$host"; done | sort -u | paste -sd' ')
  [ -n "$lost" ] || return
  say "srun has lost a node of this job, or could start nothing there: $lost"
  # shellcheck disable=SC2086 # one or more
  [ -z "${BAD_NODES:-}" ] || note_bad_nodes "lost, or nothing could be started there" $lost
}
