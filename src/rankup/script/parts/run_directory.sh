# ---- The run directory ---------------------------------------------------------------------------------------------
# RUN holds logs, records, snapshots, and small files through which this script and the ranks talk to each other. A
# program that uses rankup finds it by RANKUP_RUN_DIR; other programs need not care.
make_run_directory() { # JOB [TASK]
  case $BASE in
    */) # submitted by hand
      BASE=$BASE$1
      # shellcheck disable=SC2034 # for a successor, under PBS
      RANKUP_RUN=$BASE
      ;;
  esac
  unset RANKUP_TASK
  export -n RANKUP_RUN # not for jobs that this one submits
  export RUN=$BASE
  [ "$#" -lt 2 ] || export RANKUP_TASK=$2 RUN=$BASE/task-$2
  export RANKUP_RUN_DIR=$RUN
  (umask 077 && mkdir -p "$BASE/logs" "$RUN/logs" "$RUN/records")
  [ -e "$BASE/job.sh" ] || cp "$0" "$BASE/job.sh" # for a successor, and for later
}
