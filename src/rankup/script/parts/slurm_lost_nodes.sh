# ---- Was a node dead at the launch? --------------------------------------------------------------------------------
# SLURM requeues a job that loses a node. It has not noticed yet if srun can start nothing there.
find_lost_nodes() {
  lost=''
  if [ "$code" -eq 0 ] || [ -n "$called$terminated" ] || [ -e "$RUN/CANCELLED" ]; then return; fi
  lost=$(tail -c "+$((log_began + 1))" "$log_file" |
    sed -nE 's/^srun: error: Task launch for .* failed on node ([^ :]+):.*/\1/p' | sort -u | paste -sd' ')
  [ -n "$lost" ] || return
  say "srun could start nothing on a node of this job: $lost"
  # shellcheck disable=SC2086 # one or more
  [ -z "${BAD_NODES:-}" ] || note_bad_nodes "nothing could be started there" $lost
}
