#!/bin/sh
# Runs one rank, and notes how it failed: when (epoch seconds), rank, host, exit code, torchrun's restarts so far. What
# begins with an option is for the Python of the torchrun that started this.
trap : TERM INT HUP USR1 USR2 # the rank hears them too; this waits for its end
case $1 in
  -*)
    python=$(tr '\0' '\n' <"/proc/$PPID/cmdline" | head -n 1)
    set -- "${PYTHON_EXEC:-${python:-python}}" "$@"
    ;;
esac
exec 3>&2 2>/dev/null # for what the shell itself says of a signal
"$@" 2>&3 3>&-
code=$?
[ "$code" -ne 0 ] || exit 0
trap '' TERM INT HUP USR1 USR2 # nor may they end what follows; should a KILL do so, no line is better than half a line
now=$(date +%s.%N) && host=$(uname -n) &&
  echo "$now ${RANK:-0} $host $code ${TORCHELASTIC_RESTART_COUNT:-0}" >>"$RUN/failures"
if [ "$code" -gt 128 ]; then # by the same signal, which is what the launcher looks for
  ulimit -c 0
  trap - TERM INT HUP USR1 USR2
  kill -"$((code - 128))" $$
fi
exit "$code"
