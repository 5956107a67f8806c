# What starts the agents brings neither this script's exports nor its folder to the nodes: a script per node does.
for i in "${!HOSTS[@]}"; do
  rm -f "$RUN/agent-$i.code" "$RUN/logs/node-$i.log"
  (
    umask 077 # secrets are among the exports
    {
      export -p | grep -Ev '^declare -[a-z]+ (PBS_NODENUM|PBS_TASKNUM|PBS_MOMPORT|PBS_JOBCOOKIE|HOSTNAME|TMPDIR|PWD|OLDPWD|SHLVL)='
      declare -f agent
      printf 'cd %q || exit 1\nNODE_RANK=%d\nagent >>%q 2>&1 &\n' "$PWD" "$i" "$RUN/logs/node-$i.log"
      echo "trap 'kill -TERM \$!' TERM INT HUP"
      echo "while wait \$!; code=\$?; kill -0 \$! 2>/dev/null; do :; done"
      printf 'echo "$code" >%q\nexit "$code"\n' "$RUN/agent-$i.code"
    } >"$RUN/agent-$i.sh"
  )
done
