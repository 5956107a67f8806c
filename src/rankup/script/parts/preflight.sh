# ---- Preflight -----------------------------------------------------------------------------------------------------
# Examines the nodes where this job's Python has rankup. On a broken node the ranks would wait until they time out.
preflight() { # PYTHON RANKS_PER_NODE
  if ! "$1" -c 'import rankup.doctor, typer' 2>/dev/null; then
    say "no preflight: $1 has no rankup"
    return
  fi
  rm -f "$RUN/doctor.json"
  "$1" -m rankup doctor --quick --nproc-per-node "$2" --dir "$RUN" --out "$RUN/doctor.json"
  grep -qs '"verdict": "broken"' "$RUN/doctor.json" || return 0
  [ -z "${BAD_NODES:-}" ] || "$1" -m rankup sites bad-nodes "$BAD_NODES" --doctor "$RUN/doctor.json"
  if [ -n "${USED:-}" ]; then
    rm -f "$RUN/broken"
    "$1" -m rankup sites bad-nodes "$RUN/broken" --doctor "$RUN/doctor.json"
    # shellcheck disable=SC2046 # one or more
    [ ! -s "$RUN/broken" ] || ! replace_nodes $(cut -d' ' -f1 "$RUN/broken") || return 0
  fi
  finish failed 1
}
