# ---- Data on the nodes' own disks ----------------------------------------------------------------------------------
# Each node brings what STAGE names to its own disk before the ranks start, and what BACK names to RUN/results after they
# have ended. On each node that is RUN/stage.py, started as the ranks' agents are (on_all_nodes).
stage_in() { # sets RANKUP_STAGE
  STAGE_PYTHON=$(command -v python3 || command -v python || echo /usr/libexec/platform-python)
  export STAGE_PYTHON RANKUP_STAGE=$LOCAL_DISK/rankup-$JOB
  cat >"$RUN/stage.py" <<'END_OF_PYTHON'
@stage.py@
END_OF_PYTHON
  trap stage_back EXIT # however this script ends
  if ! { stage_here check && broadcast && on_all_nodes in; }; then
    say "$(cat "$RUN/why" 2>/dev/null || echo "not all nodes have the data")"
    finish failed 1
  fi
}
# In a job of SLURM one node reads, and sbcast sends it to the others. Otherwise, and if it fails, each node reads.
broadcast() {
  local source
  [ -n "${SLURM_JOB_ID:-}" ] && [ "${#HOSTS[@]}" -gt 1 ] && command -v sbcast >/dev/null || return 0
  for source in "${STAGE[@]}"; do
    [ ! -f "${source#*=}" ] || sbcast --force "${source#*=}" "$RANKUP_STAGE-${source%%=*}" ||
      say "sbcast failed: each node reads ${source#*=} by itself"
  done
  return 0
}
# What has been told to end ends no other step of the job: then this node copies at least its own.
stage_back() {
  trap - EXIT
  on_all_nodes back || stage_here back
}
stage_here() (export_stage "$1" && exec "$STAGE_PYTHON" "$RUN/stage.py" "$1" 0)
export_stage() { # check|in|back
  local sources patterns
  sources=$(printf '%s\n' "${STAGE[@]}")
  patterns=$(printf '%s\n' "${BACK[@]}")
  export STAGE_DO=$1 STAGE_SOURCES=$sources STAGE_BACK=$patterns
}
