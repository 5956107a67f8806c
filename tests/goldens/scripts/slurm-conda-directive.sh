#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --time=01:00:00
#SBATCH --exclusive
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=/work/user/project/runs/train/20260101-120000-abcd/logs/job.log
#SBATCH --reservation=course

# Written by rankup. This is plain bash: it needs no rankup on the nodes unless the program itself does, and can
# be read, changed and submitted by hand.
# shellcheck disable=SC2016

# ---- Settings ------------------------------------------------------------------------------------------------------
STOP_BEFORE=300 # seconds before the end at which the ranks are asked to save
MAX_REQUEUES=10
INTERFACE='' # of the network between the nodes; '': ask

# ---- What SLURM says --------------------------------------------------------------------------------------------
# The batch shell runs on the first node. SLURM_JOB_NODELIST is short for many names: scontrol reads it, regexes fail.
JOB=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
JOB=${JOB:-$SLURM_JOB_ID}
QUEUE=${SLURM_JOB_PARTITION:-}
ENDED_BY=scheduler # when time is up
mapfile -t HOSTS < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
# When SLURM will end the job, in epoch seconds; 0 where nobody knows. (To `date`, no text at all is last midnight.)
END=$(squeue --noheader --jobs "$JOB" --format %e)
END=$(date -d "${END:-unknown}" +%s 2>/dev/null || echo "${SLURM_JOB_END_TIME:-0}")
# After `sbatch --export=NONE` srun would hand on nothing, not even what this script exports, or PATH.
export SLURM_EXPORT_ENV=ALL
trap : USR1 # there is nobody to be asked yet
# The same job once more, under the same id and into the same log. SLURM waits about two minutes before it starts.
requeue() { scontrol requeue "$JOB"; }

# ---- The run directory ---------------------------------------------------------------------------------------------
# Logs, records, snapshots, and small files through which the parts of this job speak to each other. A program
# that uses rankup finds it by RANKUP_RUN_DIR; others need not care.
BASE=/work/user/project/runs/train/20260101-120000-abcd
export RUN=$BASE
unset RANKUP_TASK
export RANKUP_RUN_DIR=$RUN
(umask 077 && mkdir -p "$BASE/logs" "$RUN/logs" "$RUN/records")
say() { echo "==== rankup: $*"; }
# Done is done, for a task of an array that is resumed; a successor that was submitted beforehand may be too late. It
# ends with the run's code, for what waits for it.
case $(cat "$RUN/outcome" 2>/dev/null) in
  "done") over=yes ;;
  failed | cancelled) over=${RANKUP_SUCCESSOR:-} ;;
  *) over='' ;;
esac
if [ -n "$over" ] || [ -e "$RUN/CANCELLED" ]; then
  say "nothing is left to do for job $JOB"
  exit "$(cat "$RUN/exit_code" 2>/dev/null || echo 0)"
fi
rm -f "$RUN/STOP" "$RUN/outcome" "$RUN/outcome.json" "$RUN/exit_code" "$RUN/failure" "$RUN/failures" "$RUN/why"
log_file=$(readlink -f "/proc/$$/fd/1") # where this script writes, if that is a file
log_began=$(stat -Lc %s "$log_file" 2>/dev/null || echo 0)
attempt=$(($(wc -l 2>/dev/null <"$RUN/attempts" || echo 0) + 1))
echo "$attempt $JOB $(date +%s) $(hostname)" >>"$RUN/attempts"
say "attempt $attempt, job $JOB, $(date '+%F %T'), $(hostname) ===="

# No secrets are left behind: not in the agents' scripts, and when no attempt follows not in secrets.env, which is for all
# tasks of an array. (`rankup resume` writes them anew.)
tidy() { # WORD
  local folder
  rm -f "$RUN"/agent-*.sh
  [ "$1" != requeue ] || [ -z "${requeued:-}" ] || return
  for folder in "$BASE"/task-*/; do
    [ ! -d "$folder" ] || grep -Eqs '^(done|failed|cancelled)$' "$folder/outcome" || return
  done
  rm -f "$BASE/secrets.env"
}
# How an attempt ends: the word for people and for the next attempt, and the code for whoever waits.
code_for_scheduler='' # where it must not be the same
finish() { # WORD CODE
  echo "$1" >"$RUN/outcome"
  echo "$2" >"$RUN/exit_code"
  tidy "$1"
  say "$1, exit code $2"
  exit "${code_for_scheduler:-$2}"
}

# ---- The environment -----------------------------------------------------------------------------------------------
cd /work/user/project || finish failed 1
# `conda activate` is a function of the shell, which batch shells do not have.
# shellcheck disable=SC1091
. "$(conda info --base)/etc/profile.d/conda.sh" || finish failed 1
conda activate torch-env || finish failed 1
export PYTHONUNBUFFERED=1
cores=${SLURM_CPUS_ON_NODE:-$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > 4 ? cores / 4 : 1))} # torchrun would say 1

# ---- Where the ranks meet -----------------------------------------------------------------------------------------
# The address of this host that the others reach: the one from which packets to them leave, or that of INTERFACE. A
# host's own name may resolve to 127.0.1.1 on itself.
MASTER_ADDR=127.0.0.1
if [ "${#HOSTS[@]}" -gt 1 ]; then
  if [ -n "$INTERFACE" ]; then
    address=$(ip -o -4 address show dev "$INTERFACE" 2>/dev/null | awk '{ sub("/.*", "", $4); print $4; exit }')
  else
    peer=$(getent ahostsv4 "${HOSTS[1]}" | awk '{ print $1; exit }')
    address=$(ip -o -4 route get "$peer" 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p')
  fi
  MASTER_ADDR=${address:-${HOSTS[0]}}
fi
# A port that another job on this host cannot get: a process binds it, and holds it until this script ends. A server that
# sets SO_REUSEADDR, as torch's does, can listen on it.
hold_port() { # PYTHON
  exec "$1" - "$$" 2>/dev/null <<'END_OF_PYTHON'
"""A port that no other job on this host gets: bound, and held until whoever needs it has ended.

Two jobs that work out a port from their numbers may come to the same one, and so may two that look for a free one at
the same time. A port that is bound cannot be bound by another job; a server that sets SO_REUSEADDR, as torch's store
does, can listen on it all the same.

Job scripts hold this file's text, and run it with any Python 3 of the node: standard library alone, no newer syntax.
``python ports.py PID`` prints the port, and holds it while PID is its parent.
"""

import os
import random
import socket
import sys
import time

# Below 32768, where Linux begins to lend ports to anyone who connects to somewhere.
FIRST_PORT, LAST_PORT = 15000, 32767
_TRIES = 100


def hold_port() -> socket.socket:
    """A socket with a port of its own on all of this host's addresses; closing it lets go. Raises ``OSError``."""
    tries = random.SystemRandom().sample(range(FIRST_PORT, LAST_PORT + 1), _TRIES)
    for port in [*tries, 0]:  # 0: any that is free
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.bind(("", port))
        except OSError:
            holder.close()
            continue
        # Only now: with it before, two holders could have the same port, since neither of them listens.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return holder
    raise OSError("no port is free")


def hold_for(parent: int) -> None:
    with hold_port() as holder:
        print(holder.getsockname()[1], flush=True)
        while os.getppid() == parent:
            time.sleep(0.5)


if __name__ == "__main__":
    hold_for(int(sys.argv[1]))
END_OF_PYTHON
}
MASTER_PORT=''
for python in python3 python /usr/libexec/platform-python; do
  exec {port}< <(hold_port "$python")
  holder=$!
  read -r -t 60 MASTER_PORT <&"$port" && break
  exec {port}<&-
done
# Without any Python on this host: one on which nobody listens now.
while [ -z "$MASTER_PORT" ] || (exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do
  MASTER_PORT=$((15000 + (RANDOM * 32768 + RANDOM) % 17000))
done
export MASTER_ADDR MASTER_PORT

# ---- For whoever reads the log ------------------------------------------------------------------------------------
echo "nodes     ${HOSTS[*]}${QUEUE:+ (queue $QUEUE)}"
echo "machine   $(uname -m), $(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) cores for this shell"
echo "modules   ${LOADEDMODULES:-none}"
command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus
env | grep -E '^(NCCL|GLOO|FI|UCX|OMP|CUDA|MPICH)_|^MASTER_' | sort
echo "python    $(python --version 2>&1)"

# ---- Whether another attempt would come further ---------------------------------------------------------------------
# A script that could not be asked to save begins again from what it has saved by itself. If that is nothing, twice in a
# row, then no attempt will ever come further.
wrote='' # to a disk, more than a few lines of output: seen just before the ranks are ended
see_writes() {
  wrote=$(for id in $(marked); do cat "/proc/$id/io"; done 2>/dev/null |
    awk '/^write_bytes:/ && $2 > 4194304 { print "yes"; exit }')
}
# Any file that is newer than the beginning of this attempt, where it runs, in its run directory and where its arguments
# point to. Files of rankup's own do not count, nor what Python compiles. No answer in time counts as progress.
made_progress() {
  local place places=("$RUN") found seconds=$((STOP_BEFORE / 16 + 1))
  [ -z "$wrote" ] || return 0
  for place in "$PWD" "${PLACES[@]}"; do
    [ -d "$place" ] || place=${place%/*}
    [ ! -d "$place" ] || places+=("$place")
  done
  found=$(timeout "$((seconds < 10 ? seconds : 10))" find -H "${places[@]}" \
    \( \( -path "$RUNS/*" ! -path "$RUN" ! -path "$RUN/*" \) -o -path "$RUN/logs" -o -path "$RUN/records" \
    -o -name .git -o -name __pycache__ \) -prune -o -type f -newer "$RUN/attempts" \
    ! \( -path "$RUN/*" ! -path "$RUN/*/*" \( -name 'agent*' -o -name 'exit_code' -o -name 'failure*' -o -name hosts \
    -o -name jobs -o -name listening -o -name 'no_progress' -o -name 'outcome*' -o -name rank.sh -o -name requeues \
    -o -name rsh -o -name '*STOP' \) \) ! -samefile "/proc/$$/fd/1" ! -samefile "/proc/$$/fd/2" -print -quit 2>/dev/null ||
    [ "$?" -ne 124 ] || echo late)
  [ -n "$found" ]
}
PLACES=()
RUNS=/work/user/project/runs # below it, other runs' files

# ---- When time runs out -------------------------------------------------------------------------------------------
called='' terminated=''
# All processes of this attempt carry a mark, so that those are found as well that have outlived their parent.
RANKUP_MARK=$$.$(date +%s)/
export RANKUP_MARK
marked() { # their ids, on this host
  (
    mark=$RANKUP_MARK
    unset RANKUP_MARK # those that look for it have none
    grep -lz "^RANKUP_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n'
  )
}
# STOP asks the ranks to save and end: one line, why and until when. By rename, so that nobody reads half of it. They
# look once a second and end with 0: of any other code torchrun would make a failure, and start them again.
ask_to_stop() { # WHY UNTIL
  [ -e "$RUN/STOP" ] && return
  echo "$1 $2" >"$RUN/.STOP" && mv "$RUN/.STOP" "$RUN/STOP"
  say "asked the ranks to save and stop ($1)"
}
# Who has not ended shortly before the end was not asked in a way it understands. Where no attempt may follow, it works
# on until the scheduler ends it.
requeues=$(cat "$RUN/requeues" 2>/dev/null || echo 0)
last_call() {
  [ -n "$called" ] && return
  [ "$requeues" -ge "$MAX_REQUEUES" ] && [ "$ENDED_BY" = scheduler ] && return
  called=yes
  see_writes
  say "the ranks have not answered: this script could not be asked to save. It is ended now, and begins again from"
  say "whatever it has saved by itself. (rankup.should_stop() or run.steps(...) would let it answer.)"
  end_ranks
}

# ---- One rank ------------------------------------------------------------------------------------------------------
# Only its parent knows when and how a rank has ended. This script goes on below END_OF_SCRIPT.
cat >"$RUN/rank.sh" <<'END_OF_SCRIPT'
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
END_OF_SCRIPT

# ---- Start: 2 × 4 by torchrun --------------------------------------------------------------------------------------
# shellcheck disable=SC2016 # torchrun fills this in
export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank ${rank}] '
# One agent per node; each starts the ranks of its node. The single quotes matter: here, outside of srun,
# SLURM_NODEID is 0 for everyone.
srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --mpi=none \
  bash -c '
  NODE_RANK=$SLURM_NODEID
  exec torchrun \
    --nnodes=2 --nproc_per_node=4 --max_restarts=0 \
    --node_rank="$NODE_RANK" --rdzv_backend=static --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" \
    --tee=3 --log_dir="$RUN/logs/torchrun" \
    --no_python sh "$RUN/rank.sh" -u train.py --lr 0.1 --note '"'"'it'"'"'"'"'"'"'"'"'s $HOME'"'"'' &
workers=$!
# To srun TERM means to KILL its tasks. SLURM can tell them, and not this shell; and whenever it tells this
# shell to end, it tells them as well.
end_ranks() { scancel --signal=TERM "$SLURM_JOB_ID" || kill -TERM "$workers"; }
TOLD=yes

# ---- Until the ranks end ------------------------------------------------------------------------------------------
# They run in the background, since bash handles signals between commands only. USR1 comes before the time limit
# (--signal) or before a preemption, TERM when the job is cancelled or preempted; and the script keeps time by itself.
trap 'ask_to_stop signal "$((END > 0 ? END : $(date +%s) + 30))"' USR1
trap '[ -n "$terminated$TOLD" ] || end_ranks; terminated=yes; ask_to_stop terminated "$(($(date +%s) + 10))"' TERM
while kill -0 "$workers" 2>/dev/null; do
  sleep 1
  now=$(date +%s)
  [ "$END" -eq 0 ] || [ "$now" -lt "$((END - STOP_BEFORE))" ] || ask_to_stop time-limit "$((END - STOP_BEFORE / 4))"
  [ "$END" -eq 0 ] || [ "$now" -lt "$((END - STOP_BEFORE / 4))" ] || last_call
  [ -z "$called" ] || [ "$now" -lt "$((END - STOP_BEFORE / 8))" ] || kill -KILL "$workers" 2>/dev/null
done
wait "$workers"
code=$?
# A torchrun that was killed leaves its ranks, which would train on beside the next attempt's.
# shellcheck disable=SC2046
kill -KILL $(marked) 2>/dev/null

# ---- Who failed first ---------------------------------------------------------------------------------------------
# A launcher ends with the code of any rank, often of one that it has ended itself because of another. Each rank that
# fails leaves a line in RUN/failures (see rank.sh). The cause is the earliest of the last start of the ranks that was not
# told to end, and did not just lose its connection to another one.
CONSEQUENCE='connection (was )?(closed|reset)|broken pipe|remote process exited|peer (closed|is gone)|DistNetworkError'
CONSEQUENCE+='|DistStoreError|socket timeout|NCCL communicator was aborted'
first_failure() { # sets code, and leaves RUN/failure: when, rank, host, exit code; then the exception
  local time rank host status words first='' how
  while read -r time rank host status _; do
    [ "$status" -ne 143 ] || continue # it was told to end
    words=$(last_words "$rank")
    [ -n "$first" ] || first="$time $rank $host $status"$'\n'"$words" # should all of them have lost a connection
    if grep -Eqi "$CONSEQUENCE" <<<"$words"; then continue; fi
    first="$time $rank $host $status"$'\n'"$words"
    break
  done < <(sort -k5,5nr -k1,1n "$RUN/failures" 2>/dev/null | awk 'NF != 5 { next } !seen++ { round = $5 } $5 == round')
  [ -n "$first" ] || return
  echo "$first" >"$RUN/failure"
  { read -r time rank host code && read -r words; } <"$RUN/failure"
  how="exit code $code"
  [ "$code" -le 128 ] || how="killed by SIG$(kill -l "$((code - 128))")"
  [ "$code" -ne 137 ] || how+=" (often: out of memory)"
  say "rank $rank on $host failed first, at $(date -d "@${time%.*}" '+%F %T'): $how${words:+: $words}"
}
# The exception that the last traceback of a rank names, in this attempt's part of the log.
last_words() { # RANK
  [ -f "$log_file" ] || return
  tail -c "+$((log_began + 1))" "$log_file" | tail -c 20000000 | awk -v rank="$1" '
    !sub("^(\\[rank " rank "\\]| *" rank ":) ?", "") { next }
    { sub(/^\[rank[0-9]+\]: ?/, "") }
    /Traceback \(most recent call last\)/ { inside = 1; next }
    inside && /^[^ \t]/ { words = $0; inside = 0 }
    END { print words }'
}

# ---- How it ended -------------------------------------------------------------------------------------------------
# Rank 0 of a script that joins in has left a word: `requeue` means saved, and to be continued.
[ -z "${holder:-}" ] || kill "$holder" 2>/dev/null # the port is free again
outcome=$(cat "$RUN/outcome" 2>/dev/null)
[ -e "$RUN/CANCELLED" ] && finish cancelled 143
case $code,$outcome,$called$terminated in
  0,failed,*) finish failed 1 ;;
  0,requeue,*) ;;
  # Many a program that is told to end saves what it has, and ends with 0: then only rank 0's word says that all is done.
  0,"done",* | 0,*,) finish "done" 0 ;;
  *)
    if [ -n "${lost:-}" ] && [ -z "$terminated" ]; then
      : # it goes on below, from what it has saved by itself
    elif [ -z "$called" ]; then
      [ -n "$terminated" ] || { first_failure; finish failed "$code"; }
      # Cancelled, preempted, or a node has failed: only the scheduler knows which, and whether it starts the job again.
      echo 143 >"$RUN/exit_code"
      rm -f "$RUN"/agent-*.sh
      say "ended by the scheduler"
      exit 143
    fi
    ;;
esac
without=0
if [ -n "$called" ] && ! made_progress; then
  without=$(($(cat "$RUN/no_progress" 2>/dev/null || echo 0) + 1))
  echo "$without" >"$RUN/no_progress"
  say "this attempt has left no new file from which another one could go on"
else
  rm -f "$RUN/no_progress"
fi
if [ -n "$terminated" ] || grep -qs '^user ' "$RUN/STOP"; then
  say "saved; \`rankup resume\` goes on from there"
elif [ "$requeues" -ge "$MAX_REQUEUES" ]; then
  say "it was requeued $requeues times, and no more than that is allowed: \`rankup resume\` goes on"
elif [ "$without" -ge 2 ]; then
  why="two attempts in a row have met the time limit and saved nothing: the next one would begin from nothing again"
  echo "$why" >"$RUN/why"
  say "$why"
  say "It needs a longer --time, or to save: by itself, by run.steps(...), or when rankup.should_stop() says so."
  finish failed 75
else
  echo $((requeues + 1)) >"$RUN/requeues"
  echo 75 >"$RUN/exit_code"
  echo requeue >"$RUN/outcome"
  requeued=yes
  say "requeue $((requeues + 1)) of $MAX_REQUEUES"
  requeue || say "the scheduler refused to requeue: \`rankup resume\` goes on"
fi
finish requeue 75
