# ---- Nodes that failed ---------------------------------------------------------------------------------------------
# BAD_NODES is a file of the team, with a line for each node: HOST UNTIL BY WHY, until in epoch seconds.
note_bad_nodes() { # WHY HOST...
  local why=$1 host
  for host in "${@:2}"; do
    say "noted as a bad node for 7 days: $host, $why"
    echo "$host $(($(date +%s) + 604800)) ${USER:-$UID} $why, job $JOB" >>"$BAD_NODES"
  done
}
warn_of_bad_nodes() {
  local host bad
  bad=,$(list_bad_nodes),
  for host in "${HOSTS[@]}"; do
    [ "${bad/,$host,/}" = "$bad" ] || say "warning: $host is noted as a bad node in $BAD_NODES"
  done
}
list_bad_nodes() { # separated by commas
  awk -v now="$(date +%s)" '$2 > now && !seen[$1]++ { printf "%s%s", comma, $1; comma = "," }' "$BAD_NODES" 2>/dev/null
}
