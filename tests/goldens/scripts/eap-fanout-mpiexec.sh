#!/bin/bash
#PBS -N train
#PBS -q blanca
#PBS -l select=2:ncpus=288:mpiprocs=1:ompthreads=72:ngpus=4:sales_op=blanca
#PBS -l place=scatter
#PBS -l walltime=01:00:00
#PBS -j oe
#PBS -r y
#PBS -o /work/user/project/runs/train/20260101-120000-abcd/logs/

# Written by rankup. This is plain bash: it needs no rankup on the nodes unless the program itself does, and can
# be read, changed and submitted by hand.
# shellcheck disable=SC2016

# ---- Settings ------------------------------------------------------------------------------------------------------
STOP_BEFORE=300 # seconds before the end at which the ranks are asked to save
MAX_REQUEUES=10
TIME=3600 # seconds; 0: the queue's own limit, unknown here
NODES_MAY_SUBMIT=yes
INTERFACE=hsn0 # of the network between the nodes; '': ask

# ---- What PBS says ----------------------------------------------------------------------------------------------
# The node file names a host once per process. Hosts in the order in which they first appear (never sort -u): this
# script runs on the first one.
JOB=$PBS_JOBID
QUEUE=${PBS_QUEUE:-}
ENDED_BY=scheduler # when time is up
mapfile -t HOSTS < <(awk '!seen[$0]++' "$PBS_NODEFILE")
# When PBS will end the job, in epoch seconds; 0 where nobody said. PBS warns late or never: this script keeps time.
END=$((TIME > 0 ? $(date +%s) + TIME : 0))
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
# Jobs that wait for this one to end well wait for the successor from now on: an end with 75 would delete them.
hand_over() { # TO
  local id waits_for
  for id in $(details "$JOB" | sed -n 's/.*beforeok:\([^, ]*\).*/\1/p' | tr : ' '); do
    waits_for=$(details "$id" | sed -n 's/.* depend = \([^ ]*\).*/\1/p')
    qalter -W "depend=${waits_for//":$JOB"/":$1"}" "${id%%@*}"
  done
}
details() { qstat -f "${1%%@*}" 2>/dev/null | tr -d '\n\t'; } # PBS breaks long lines

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
# Done is done, for a task of an array that is resumed; a successor that was submitted beforehand may be too late.
case $(cat "$RUN/outcome" 2>/dev/null) in
  "done") over=yes ;;
  failed | cancelled) over=${RANKUP_SUCCESSOR:-} ;;
  *) over='' ;;
esac
if [ -n "$over" ] || [ -e "$RUN/CANCELLED" ]; then
  say "nothing is left to do for job $JOB"
  exit 0
fi
rm -f "$RUN/STOP" "$RUN/outcome" "$RUN/outcome.json" "$RUN/exit_code"
attempt=$(($(wc -l 2>/dev/null <"$RUN/attempts" || echo 0) + 1))
echo "$attempt $JOB $(date +%s) $(hostname)" >>"$RUN/attempts"
say "attempt $attempt, job $JOB, $(date '+%F %T'), $(hostname) ===="

# How an attempt ends: the word for people and for the next attempt, and the code for whoever waits.
finish() { # WORD CODE
  echo "$1" >"$RUN/outcome"
  echo "$2" >"$RUN/exit_code"
  say "$1, exit code $2"
  exit "$2"
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
module load cray-python/3.11.7 cuda/12.6 || finish failed 1
# shellcheck disable=SC1091
. "$HOME"/venvs/torch/bin/activate || finish failed 1
export LD_LIBRARY_PATH="$HOME"/software/aws-ofi-nccl-1.14.0/lib:"$HOME"/software/nccl-2.26.2/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PYTHONUNBUFFERED=1
export OMP_NUM_THREADS=72
export NCCL_SOCKET_IFNAME=hsn0
export GLOO_SOCKET_IFNAME=hsn0
export FI_PROVIDER=cxi
export NCCL_NET='AWS Libfabric'

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
# A port of this job's own, below 32768, where Linux begins to lend ports to anyone; the next one where it is taken.
number=${JOB%%[!0-9]*}
MASTER_PORT=$((15000 + (10#${number:-0} + ${RANKUP_TASK:-0}) % 17000))
while (exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do MASTER_PORT=$((MASTER_PORT + 1)); done
export MASTER_ADDR MASTER_PORT

# ---- For whoever reads the log ------------------------------------------------------------------------------------
echo "nodes     ${HOSTS[*]}${QUEUE:+ (queue $QUEUE)}"
echo "machine   $(uname -m), $(nproc) cores for this shell"
echo "modules   ${LOADEDMODULES:-none}"
command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus
env | grep -E '^(NCCL|GLOO|FI|UCX|OMP|CUDA|MPICH)_|^MASTER_' | sort
echo "python    $(python --version 2>&1)"

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
  say "the ranks have not answered: this script could not be asked to save. It is ended now, and begins again from"
  say "whatever it has saved by itself. (rankup.should_stop() or run.steps(...) would let it answer.)"
  end_ranks
}

# ---- Start: 2 × 4 by torchrun --------------------------------------------------------------------------------------
# shellcheck disable=SC2016 # torchrun fills this in
export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank ${rank}] '
# shellcheck disable=SC2317,SC2329 # it is called by another shell
agent() {
  exec torchrun \
    --nnodes=2 --nproc_per_node=4 --max_restarts=0 \
    --node_rank="$NODE_RANK" --rdzv_backend=static --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" \
    --tee=3 --log_dir="$RUN/logs/torchrun" \
    train.py --lr 0.1 --note 'it'"'"'s $HOME'
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
  setsid bash -c "$(declare -f agent); agent" &
}
# What a node has of its own, such as the GPUs that a hook of PBS has given it, or this script alone.
OWN='PBS_NODENUM|PBS_TASKNUM|PBS_MOMPORT|PBS_JOBCOOKIE|PBS_JOBDIR|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK|HOSTNAME|TMPDIR|PWD|OLDPWD|SHLVL'
# On its node: waits for the agent PID, tells it once to end, and sees to it that no process of it is left.
# shellcheck disable=SC2317,SC2329 # it is called on the nodes
watch_over() { # PID
  local told='' passed='' grace=35 word code
  trap 'told=${told:-$SECONDS}' TERM INT HUP
  while kill -0 "$1" 2>/dev/null; do
    word=$(cat "$RUN/agents.end") # opened anew each time, since NFS then shows what is new
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
# What starts the agents brings neither this script's exports nor its folder to the nodes: a script per node does.
: >"$RUN/agents.end"
for i in "${!HOSTS[@]}"; do
  rm -f "$RUN/agent-$i.code"
  (
    umask 077 # secrets are among the exports
    {
      export -p | grep -Ev "^declare -[a-z]+ ($OWN)="
      declare -f marked agent start_agent watch_over
      printf 'RANKUP_MARK+=%d/\ncd %q || exit 1\nexport NODE_RANK=%d\n' "$i" "$PWD" "$i"
      printf 'start_agent\n'
      printf 'watch_over "$!"\ncode=$?\necho "$code" >%q\nexit "$code"\n' "$RUN/agent-$i.code"
    } >"$RUN/agent-$i.sh"
  )
done
printf "%s\n" "${HOSTS[@]}" >"$RUN/hosts"
mpiexec -n "${#HOSTS[@]}" --ppn 1 --hostfile "$RUN/hosts" --cpu-bind none --envall \
  bash -c 'exec bash "$RUN/agent-$PALS_RANKID.sh"' &
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

# ---- How it ended -------------------------------------------------------------------------------------------------
# Rank 0 of a script that joins in has left a word: `requeue` means saved, and to be continued.
outcome=$(cat "$RUN/outcome" 2>/dev/null)
[ -e "$RUN/CANCELLED" ] && finish cancelled 143
case $code,$outcome,$called$terminated in
  0,failed,*) finish failed 1 ;;
  0,requeue,*) ;;
  # Many a program that is told to end saves what it has, and ends with 0: then only rank 0's word says that all is done.
  0,"done",* | 0,*,) finish "done" 0 ;;
  *)
    if [ -z "$called" ]; then
      [ -n "$terminated" ] || finish failed "$code"
      # Cancelled, preempted, or a node has failed: only the scheduler knows which, and whether it starts the job again.
      echo 143 >"$RUN/exit_code"
      say "ended by the scheduler"
      exit 143
    fi
    ;;
esac
if [ -n "$terminated" ] || grep -qs '^user ' "$RUN/STOP"; then
  say "saved; \`rankup resume\` goes on from there"
elif [ "$requeues" -ge "$MAX_REQUEUES" ]; then
  say "it was requeued $requeues times, and no more than that is allowed: \`rankup resume\` goes on"
else
  echo $((requeues + 1)) >"$RUN/requeues"
  echo 75 >"$RUN/exit_code"
  echo requeue >"$RUN/outcome"
  say "requeue $((requeues + 1)) of $MAX_REQUEUES"
  requeue || say "the scheduler refused to requeue: \`rankup resume\` goes on"
fi
finish requeue 75
