#!/bin/bash
#PBS -N train
#PBS -A st-user-1-gpu
#PBS -l select=1:ncpus=24:mpiprocs=1:ompthreads=6:ngpus=4:mem=190464mb
#PBS -l place=scatter
#PBS -l walltime=24:00:00
#PBS -j oe
#PBS -r y
#PBS -o /work/user/project/runs/train/20260101-120000-abcd/logs/
#PBS -m abe
#PBS -M user@example.org

# Written by rankup. This is plain bash: it needs no rankup on the nodes unless the program itself does, and can
# be read, changed and submitted by hand.
# shellcheck disable=SC2016

# ---- Settings ------------------------------------------------------------------------------------------------------
STOP_BEFORE=300 # seconds before the end at which the ranks are asked to save
MAX_REQUEUES=10
TIME=86400 # seconds; 0: the queue's own limit
NODES_MAY_SUBMIT=yes

# ---- What PBS says ----------------------------------------------------------------------------------------------
# The node file names a host once per process. Hosts in the order in which they first appear (never sort -u): this
# script runs on the first one.
JOB=$PBS_JOBID
QUEUE=${PBS_QUEUE:-}
ENDED_BY=scheduler # when time is up
mapfile -t HOSTS < <(awk '!seen[$0]++' "$PBS_NODEFILE")
details() { timeout 30 qstat -f "${1%%@*}" 2>/dev/null | tr -d '\n\t'; } # PBS breaks long lines
# When PBS will end the job, in epoch seconds; 0 where nobody knows. A job without a time of its own has the queue's.
# PBS warns late or never: this script keeps time.
limit=$(details "$JOB" | sed -n 's/.* Resource_List\.walltime = \([0-9:]*\).*/\1/p' | awk -F: '{ print ($1 * 60 + $2) * 60 + $3 }')
limit=${limit:-$TIME}
END=$((limit > 0 ? $(date +%s) + limit : 0))
# qrerun is for operators. A successor of the same script goes on, in the same run directory, when this job has ended.
requeue() {
  local next
  if [ "$NODES_MAY_SUBMIT" != yes ]; then
    say "a successor was submitted beforehand"
  elif [ -n "${RANKUP_TASK:-}" ]; then
    # One task of an array becomes a job of its own.
    next=$(grep -Ev '^#PBS -[Jt] ' "$BASE/job.sh" | qsub -v "$SUCCESSOR,RANKUP_TASK=$RANKUP_TASK") &&
      echo "$next $RANKUP_TASK" >>"$BASE/jobs"
  else
    next=$(qsub -W "depend=afterany:$JOB" -v "$SUCCESSOR" "$RUN/job.sh") &&
      echo "$next" >>"$RUN/jobs" && hand_over "$next"
  fi
}
# Jobs that wait for this one to end well wait for the successor from now on. PBS keeps them in this job's own list all
# the same, and deletes them if it ends with 75: so it ends with 0, if all of them were told.
hand_over() { # TO
  local id waits_for told='' untold=''
  for id in $(details "$JOB" | sed -n 's/.*beforeok:\([^, ]*\).*/\1/p' | tr : ' '); do
    waits_for=$(details "$id" | sed -n 's/.* depend = \([^ ]*\).*/\1/p')
    if qalter -W "depend=${waits_for//":$JOB"/":$1"}" "${id%%@*}"; then told=yes; else untold="$untold ${id%%@*}"; fi
  done
  [ -z "$untold" ] || say "could not be told to wait for $1, and PBS will delete what waits for $JOB:$untold"
  [ -z "$told" ] || [ -n "$untold" ] || code_for_scheduler=0
}
# A node that PBS does not reach any more.
# shellcheck disable=SC2317,SC2329 # jobs of one node do not ask
is_lost() { timeout 20 pbsnodes "$1" 2>/dev/null | grep -Eiq '^ *state = .*(down|unknown|stale)'; }

# ---- The run directory ---------------------------------------------------------------------------------------------
# Logs, records, snapshots, and small files through which the parts of this job speak to each other. A program
# that uses rankup finds it by RANKUP_RUN_DIR; others need not care.
BASE=/work/user/project/runs/train/20260101-120000-abcd
SUCCESSOR="RANKUP_SUCCESSOR=1"
export RUN=$BASE
unset RANKUP_TASK
export RANKUP_RUN_DIR=$RUN
(umask 077 && mkdir -p "$BASE/logs" "$RUN/logs" "$RUN/records")
# One log for all attempts, which can be read while the job runs.
exec >>"$BASE/logs/job.log" 2>&1
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
# Batch shells do not always know `module`.
if ! type module >/dev/null 2>&1; then
  for init in "${MODULESHOME:-/nowhere}/init/bash" "${LMOD_PKG:-/nowhere}/init/bash" /etc/profile.d/{lmod,modules,z00_lmod}.sh; do
    # shellcheck disable=SC1090
    [ -r "$init" ] && . "$init" && break
  done
fi
module load gcc/9.4.0 python/3.8.10 cuda/11.3.1 nccl/2.9.9-1-cuda11-3 || finish failed 1
# shellcheck disable=SC1091
. /arc/project/user/venv/bin/activate || finish failed 1
export PYTHONUNBUFFERED=1
export OMP_NUM_THREADS=6

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

# ---- Start: 1 × 4 by torchrun --------------------------------------------------------------------------------------
# shellcheck disable=SC2016 # torchrun fills this in
export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank ${rank}] '
# shellcheck disable=SC2317,SC2329 # it is called by another shell
agent() {
  exec torchrun \
    --nnodes=1 --nproc_per_node=4 --max_restarts=0 \
    --standalone --local_addr=127.0.0.1 \
    --tee=3 --log_dir="$RUN/logs/torchrun" \
    --no_python sh "$RUN/rank.sh" -u train.py --lr 0.1 --note 'it'"'"'s $HOME'
}
# In a session of its own torchrun hears TERM once, from this script: PBS sends it to all of a task's session, and at a
# second one torchrun leaves its ranks before they have saved. Should PBS KILL this script, somebody else ends the ranks,
# which no end of a session reaches either: torchrun gives each of them one of its own.
# shellcheck disable=SC2317,SC2329 # it is called on the nodes, where there are several
start_agent() {
  env -u RANKUP_MARK setsid bash -c "$(declare -f marked)
    RANKUP_MARK=$RANKUP_MARK
    cd /
    while kill -0 $$; do sleep 2; done
    kill -KILL \$(marked)" </dev/null >/dev/null 2>&1 &
  setsid bash -c "$(declare -f agent); agent" 2> >(quiet) &
}
# What torchrun says on stderr, but for its traceback of having been told to end. It ends when torchrun has.
# shellcheck disable=SC2317,SC2329 # it is called on the nodes, where there are several
quiet() {
  trap '' TERM INT HUP
  exec env -u RANKUP_MARK sed --unbuffered -e '/^Traceback (most recent call last):$/{' -e ':more' -e N \
    -e '/\n[ \t][^\n]*$/b more' -e '/\n[^\n]*SignalException: [^\n]*$/d' -e '}' >&2
}
start_agent
workers=$!
end_ranks() { kill -TERM "$workers" 2>/dev/null; }
TOLD=''

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
