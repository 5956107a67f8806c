#!/bin/sh
# Runs one rank, and notes how it failed: when (epoch seconds), rank, host, exit code, torchrun's restarts so far. A
# command that begins with an option is for the Python of the torchrun that started this.
trap : TERM INT HUP USR1 USR2 # the rank gets them too; this shell waits for its end
case $1 in
  -*)
    python=$(tr '\0' '\n' <"/proc/$PPID/cmdline" | head -n 1)
    set -- "${PYTHON_EXEC:-${python:-python}}" "$@"
    ;;
esac
sampler=''
if [ "${LOCAL_RANK:-0}" = 0 ] && [ -e "$RUN/sampler.sh" ]; then # one per node
  sh "$RUN/sampler.sh" $$ "$1" </dev/null >/dev/null 2>&1 &
  sampler=$!
fi
exec 3>&2 2>/dev/null # hides what the shell itself prints about a signal
"$@" 2>&3 3>&-
code=$?
[ -z "$sampler" ] || kill "$sampler"
[ "$code" -ne 0 ] || exit 0
trap '' TERM INT HUP USR1 USR2 # they must not end what follows; after a KILL, no line is better than half a line
now=$(date +%s.%N) && host=$(uname -n) &&
  echo "$now ${RANK:-0} $host $code ${TORCHELASTIC_RESTART_COUNT:-0}" >>"$RUN/failures"
if [ "$code" -gt 128 ]; then # end by the same signal, which is what the launcher looks for
  ulimit -c 0
  trap - TERM INT HUP USR1 USR2
  kill -"$((code - 128))" $$
fi
exit "$code"
