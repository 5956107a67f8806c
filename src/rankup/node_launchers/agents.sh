# On its node: waits for the agent PID, tells it once to end, and makes sure that no process of it is left. A line in a
# file says every 10 s that the node is alive.
# shellcheck disable=SC2317,SC2329 # it is called on the nodes
watch_over() { # PID
  local told='' passed='' grace=35 beat=-10 word code
  trap 'told=${told:-$SECONDS}' TERM INT HUP
  while kill -0 "$1" 2>/dev/null; do
    [ "$((SECONDS - beat))" -lt 10 ] || { beat=$SECONDS && echo "$beat" >"$RUN/agent-$NODE_RANK.alive"; }
    word=$(cat "$RUN/agents.end") # opened again each time: NFS then shows what is new
    [ -z "$word" ] || grace=$word told=${told:-$SECONDS}
    [ -z "$told" ] || [ -n "$passed" ] || kill -TERM "$1" 2>/dev/null
    passed=$told
    [ -z "$told" ] || [ "$((SECONDS - told))" -lt "$grace" ] || break
    sleep 1
  done
  # shellcheck disable=SC2046
  kill -KILL "$1" $(marked) 2>/dev/null
  while wait "$1"; code=$?; kill -0 "$1" 2>/dev/null; do :; done
  return "$code"
}
# A script per node brings this script's exports and its folder to the nodes. What an agent prints
# goes to a file, to two (the second for stderr), or to whatever starts the script.
write_agent_scripts() { # to-log|to-logs|to-stdout
  set -- "$1" "$(export -p)" # before this function has a variable that is called like one of them
  local i
  : >"$RUN/agents.end"
  rm -f "$RUN"/logs/node-*.{log,err}
  printf '%s\n' "${HOSTS[@]}" >"$RUN/hosts"
  for i in "${!HOSTS[@]}"; do
    rm -f "$RUN/agent-$i.code" "$RUN/agent-$i.alive"
    (
      umask 077 # secrets are among the exports
      {
        printf '%s\n' "$2" | grep -Ev "^declare -[a-z]+ ($(own_names))="
        declare -f marked agent quiet start_agent watch_over
        printf 'RANKUP_MARK+=%d/\ncd %q || exit 1\nexport NODE_RANK=%d\n' "$i" "$PWD" "$i"
        printf start_agent
        [ "$1" = to-stdout ] || printf ' >>%q' "$RUN/logs/node-$i.log"
        [ "$1" != to-log ] || printf ' 2>&1'
        [ "$1" != to-logs ] || printf ' 2>>%q' "$RUN/logs/node-$i.err"
        printf '\nwatch_over "$!"\ncode=$?\necho "$code" >%q\nexit "$code"\n' "$RUN/agent-$i.code"
      } >"$RUN/agent-$i.sh"
    )
  done
}
