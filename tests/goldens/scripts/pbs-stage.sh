#!/bin/bash
#PBS -N train
#PBS -l select=2:ncpus=32:mpiprocs=4:ompthreads=8:ngpus=4
#PBS -l place=scatter
#PBS -l walltime=01:00:00
#PBS -j oe
#PBS -r y
#PBS -o /work/user/project/runs/train/20260101-120000-abcd/logs/

# Written by rankup. This is plain bash: it needs no rankup on the nodes unless the program itself does, and can
# be read, changed and submitted by hand.
# shellcheck disable=SC2016

# ---- Settings ------------------------------------------------------------------------------------------------------
BASE=/work/user/project/runs/train/20260101-120000-abcd # the run directory
RUNS=/work/user/project/runs # all runs are below it
PLACES=() # where else the program may save: paths in its arguments and variables
SAVES=() # patterns of what it goes on from; (): any file there
STOP_BEFORE=300 # seconds before the time limit at which the ranks are asked to save
MAX_REQUEUES=10
STAGE=(data="$HOME"'/it'"'"'s data.tar' env=/work/user/env.tar.gz) # what each node gets on its own disk
BACK=('out/*' 'a b/**') # what is copied from there to RUN/results
LOCAL_DISK=${SLURM_TMPDIR:-${LOCAL_SCRATCH:-${TMPDIR:-/tmp}}}
TIME=3600 # seconds; 0: the queue's own limit
NODES_MAY_SUBMIT=yes
INTERFACE='' # the nodes' network; '': the route says it

on_all_nodes() ( # in|back
  export_stage "$1"
  mark_processes
  # On each node:
  # shellcheck disable=SC2317,SC2329 # it is called by another shell
  agent() {
    exec "$STAGE_PYTHON" "$RUN/stage.py" "$STAGE_DO" "$NODE_RANK"
  }
  write_agent_scripts to-log
  fan_out &
  workers=$!
  wait "$workers"
  code=$?
  rm -f "$RUN"/agent-* "$RUN/agents.end"
  exit "$code"
)

main() {
  read_allocation # JOB, HOSTS, END
  make_run_directory "$JOB" # RUN
  write_one_log
  begin_attempt

  # The environment
  cd /work/user/project || finish failed 1
  stage_in # RANKUP_STAGE
  export PYTHONUNBUFFERED=1
  export OMP_NUM_THREADS=8
  export RANKUP_LOST=stop

  # The ranks: 2 × 4 by mpirun
  prove 36 python 4 train.py --data="$RANKUP_STAGE"/data --note 'it'"'"'s '"$RANKUP_STAGE"' $HOME'
  choose_rendezvous # MASTER_ADDR, MASTER_PORT
  print_header "$(python --version 2>&1)"
  mark_processes
  write_rank_script
  add_torch_hook python
  write_sampler_script
  use_pbs_for_mpirun
  mpirun -np 8 --hostfile "$PBS_NODEFILE" --map-by ppr:4:node:PE=8 --bind-to core -x PATH -x OMP_NUM_THREADS -x RUN -x RANKUP_RUN_DIR -x MASTER_ADDR -x MASTER_PORT -x RANKUP_STAGE -x PYTHONUNBUFFERED -x RANKUP_LOST ${LD_LIBRARY_PATH:+-x LD_LIBRARY_PATH} ${PYTHONPATH:+-x PYTHONPATH} \
    bash -c '
      export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE NODE_RANK=$((OMPI_COMM_WORLD_RANK / OMPI_COMM_WORLD_LOCAL_SIZE))
      trap "" TERM INT HUP
      exec 3> >(exec sed --unbuffered "s/^/[rank $RANK] /")
      trap - TERM INT HUP
      exec sh "$RUN/rank.sh" "$@" >&3 2>&1 3>&-' rank \
      python train.py --data="$RANKUP_STAGE"/data --note 'it'"'"'s '"$RANKUP_STAGE"' $HOME' &
  workers=$!
  watch_ranks # asks them to save before the time limit
  find_lost_nodes
  stage_back
  end_attempt python # requeues the job if it is not done
}

######################################################################################################################
# The same in every job: the functions that main calls                                                               #
######################################################################################################################

# ---- What PBS says about this job ----------------------------------------------------------------------------------
# Sets JOB, QUEUE, HOSTS and END: when PBS will end the job, in epoch seconds; 0 if nobody knows.
read_allocation() {
  local limit
  JOB=$PBS_JOBID
  QUEUE=${PBS_QUEUE:-}
  ENDED_BY=scheduler # when time is up
  # The node file names a host once per process. Hosts in the order in which they first appear (never sort -u): this
  # script runs on the first one.
  mapfile -t HOSTS < <(awk '!seen[$0]++' "$PBS_NODEFILE")
  # A job without a time limit of its own has the queue's. PBS warns late or never, so this script watches the clock.
  limit=$(details "$JOB" | sed -n 's/.* Resource_List\.walltime = \([0-9:]*\).*/\1/p' | awk -F: '{ print ($1 * 60 + $2) * 60 + $3 }')
  limit=${limit:-$TIME}
  END=$((limit > 0 ? $(date +%s) + limit : 0))
}
details() { timeout 30 qstat -f "${1%%@*}" 2>/dev/null | tr -d '\n\t'; } # PBS breaks long lines
# Only operators may qrerun. So a successor is submitted: the same script in the same run directory, after this job.
requeue() {
  local next successor="RANKUP_SUCCESSOR=1${RANKUP_RUN:+,RANKUP_RUN=$BASE}"
  if [ "$NODES_MAY_SUBMIT" != yes ]; then
    say "a successor was submitted beforehand"
  elif [ -n "${RANKUP_TASK:-}" ]; then
    # One task of an array becomes a job of its own.
    next=$(grep -Ev '^#PBS -[Jt] ' "$BASE/job.sh" | qsub -v "$successor,RANKUP_TASK=$RANKUP_TASK") &&
      echo "$next $RANKUP_TASK" >>"$BASE/jobs"
  else
    next=$(qsub -W "depend=afterany:$JOB" -v "$successor" "$RUN/job.sh") &&
      echo "$next" >>"$RUN/jobs" && hand_over "$next"
  fi
}
# Jobs that wait for the success of this one, or for its end, now wait for its successor. PBS still keeps them in this
# job's own list, and deletes those that wait for success if it ends with 75: so it ends with 0 if all were changed.
hand_over() { # TO
  local id waits_for told='' untold=''
  for id in $(details "$JOB" | grep -oE 'before(ok|any):[^, ]*' | cut -d : -f 2- | tr : ' '); do
    [ "${id%%.*}" != "${1%%.*}" ] || continue # the successor itself
    waits_for=$(details "$id" | sed -n 's/.* depend = \([^ ]*\).*/\1/p')
    if qalter -W "depend=${waits_for//":$JOB"/":$1"}" "${id%%@*}"; then told=yes; else untold="$untold ${id%%@*}"; fi
  done
  [ -z "$untold" ] || say "could not be told to wait for $1 instead of $JOB:$untold"
  [ -z "$told" ] || [ -n "$untold" ] || code_for_scheduler=0
}

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
# One log for all attempts, which can be read while the job runs.
write_one_log() { exec >>"$BASE/logs/job${RANKUP_TASK+-$RANKUP_TASK}.log" 2>&1; }

# ---- One attempt ---------------------------------------------------------------------------------------------------
say() { echo "==== rankup: $*"; }
# Ends this job if the run is over already: a task of an array that is resumed may be done, and a successor that was
# submitted beforehand may come too late. The exit code is then the run's, for jobs that wait for this one.
begin_attempt() {
  local over attempt
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
}
# Ends an attempt: WORD is for people and for the next attempt, CODE for jobs that wait for this one.
code_for_scheduler='' # if it must be another one
finish() { # WORD CODE
  echo "$1" >"$RUN/outcome"
  echo "$2" >"$RUN/exit_code"
  tidy "$1"
  say "$1, exit code $2"
  [ "$1" = requeue ] || tell_goodput
  exit "${code_for_scheduler:-$2}"
}
# What the devices did over all attempts, if the program's PYTHON has rankup: a line, and goodput.json.
python=''
tell_goodput() {
  case ${python##*/} in python*) ;; *) return ;; esac
  (cd / && timeout 60 "$python" -m rankup.core.goodput "$RUN") 2>/dev/null # modules in the job's folder are not meant
}
# Removes secrets: the agents' scripts, and, if no attempt follows, secrets.env, which all tasks of an array share.
# (`rankup resume` writes it again.)
tidy() { # WORD
  local folder
  rm -f "$RUN"/agent-*.sh
  [ "$1" != requeue ] || [ -z "${requeued:-}" ] || return
  for folder in "$BASE"/task-*/; do
    [ ! -d "$folder" ] || grep -Eqs '^(done|failed|cancelled)$' "$folder/outcome" || return
  done
  rm -f "$BASE/secrets.env"
}

# ---- Data on the nodes' own disks ----------------------------------------------------------------------------------
# Each node brings what STAGE names to its own disk before the ranks start, and what BACK names to RUN/results after they
# have ended. On each node that is RUN/stage.py, started as the ranks' agents are (on_all_nodes).
stage_in() { # sets RANKUP_STAGE
  STAGE_PYTHON=$(command -v python3 || command -v python || echo /usr/libexec/platform-python)
  export STAGE_PYTHON RANKUP_STAGE=$LOCAL_DISK/rankup-$JOB
  cat >"$RUN/stage.py" <<'END_OF_PYTHON'
"""A job's data on its node's own disk, and what the job leaves there back in the run directory.

Job scripts contain this file's text, and run it with any Python 3.6 or later: use the standard library and old syntax
only. ``stage.py check NODE`` looks for what would be refused, on the first node; ``stage.py in NODE`` and ``stage.py
back NODE`` run once on each. They find in their environment RUN, RANKUP_STAGE (the folder on the node's disk),
STAGE_SOURCES (lines of NAME=PATH) and STAGE_BACK (lines of patterns).
"""

import concurrent.futures
import contextlib
import errno
import glob
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

# What unpacks an archive that comes on its stdin; by the end of its name.
UNPACK = {
    (".tar",): (),
    (".tar.gz", ".tgz"): ("--gzip",),
    (".tar.zst", ".tzst"): ("--use-compress-program=zstd",),
}
IMAGES = (".squashfs", ".sqfs", ".sqsh")
PIECE = 4 << 20
COPIES = 16  # of a folder's files at once: a shared file system answers each of them late
TOLD_EVERY_S = 10.0


class StageError(Exception):
    """Why the job cannot start: a code, and a sentence."""


class Source:
    """One line of STAGE_SOURCES: its path, its place on the node, how large it is, and a mark that changes with it."""

    def __init__(self, name: str, path: str, folder: str) -> None:
        self.name, self.path, self.place = name, path, os.path.join(folder, name)
        if not os.path.exists(self.path):
            raise StageError(f"stage-no-source: there is no {self.path!r} here ({name})")
        self.is_folder = os.path.isdir(self.path)
        self.is_image = self.path.endswith(IMAGES) and not self.is_folder
        files = [path for path, is_link in tree(self.path) if not is_link] if self.is_folder else [self.path]
        stats = [os.stat(path) for path in files]
        self.size = sum(stat.st_size for stat in stats)
        self.mark = [self.path, len(files), self.size, max([stat.st_mtime_ns for stat in stats] or [0])]
        self.note = os.path.join(folder, ".staged", name + ".json")  # written last: what was staged whole
        self.cast = f"{folder}-{name}"  # where sbcast puts it on each node

    @property
    def tar_options(self) -> Any:
        """How tar reads it; None for what is no archive."""
        ways = [how for ends, how in UNPACK.items() if self.path.endswith(ends)]
        return ways[0] if ways and not self.is_folder else None

    def staged(self) -> str:
        """The checksum of what is there from an attempt before this one, "" if it is not the same or not whole."""
        try:
            with open(self.note) as file:
                noted = json.load(file)
        except (OSError, ValueError):
            return ""
        return noted["sha256"] if noted["mark"] == self.mark and os.path.exists(self.place) else ""

    def expected(self) -> "dict[str, str]":
        """Checksums that ``sha256sum`` has left beside it, in PATH.sha256, by the file's name; of a folder many."""
        try:
            with open(self.path + ".sha256") as file:
                lines = [line.split(None, 1) for line in file if line.strip()]
        except OSError:
            return {}
        if not self.is_folder:
            return {"": lines[0][0]} if lines else {}
        return {os.path.normpath(words[1].strip().lstrip("*")): words[0] for words in lines}


class Progress:
    """A line every few seconds, and one at the end. Copies in threads add to it."""

    def __init__(self, source: Source) -> None:
        self.source, self.done, self.began = source, 0, time.time()
        self.told, self.lock = self.began, threading.Lock()

    def add(self, count: int) -> None:
        with self.lock:
            self.done += count
            if time.time() - self.told >= TOLD_EVERY_S:
                self.told = time.time()
                say(f"{self.source.name}: {size(self.done)} of {size(self.source.size)}")

    def end(self, sha256: str) -> None:
        seconds = time.time() - self.began
        rate = size(int(self.done / max(seconds, 1e-3)))
        say(f"{self.source.name}: {size(self.done)} in {seconds:.1f} s ({rate}/s), sha256 {sha256[:16]}")


def say(text: str) -> None:
    sys.stdout.write(f"==== rankup: stage, {socket.gethostname()}: {text}\n")
    sys.stdout.flush()


def size(count: float) -> str:
    units = ["TB", "GB", "MB", "kB", "B"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        units.pop()
    return f"{count:.{int(len(units) < 5)}f} {units[-1]}"


def tree(folder: str) -> "list[tuple[str, bool]]":
    """All files and symbolic links below ``folder``, and whether each is a link; folders are made with them."""
    found = []
    for place, folders, files in os.walk(folder, onerror=fail):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        paths = [os.path.join(place, name) for name in files + links]
        found += [(path, os.path.islink(path)) for path in paths]
    return sorted(found)


def fail(error: OSError) -> None:
    raise error


def read(path: str, progress: Progress, take: "Callable[[bytes], Any]") -> str:
    """Give the file piece by piece to ``take``; its SHA-256 sum."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while True:
            piece = file.read(PIECE)
            if not piece:
                return digest.hexdigest()
            digest.update(piece)
            take(piece)
            progress.add(len(piece))


def copy_file(path: str, place: str, progress: Progress) -> str:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place + ".part", "wb") as file:
        sha256 = read(path, progress, file.write)
    shutil.copystat(path, place + ".part")
    os.replace(place + ".part", place)
    return sha256


def copy_folder(source: Source, progress: Progress) -> str:
    """In threads; the checksum is that of the list of its files, as ``sha256sum`` prints them."""
    expected = source.expected()
    for place, folders, _ in os.walk(source.path):
        for name in folders:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                os.makedirs(os.path.join(source.place, os.path.relpath(path, source.path)), exist_ok=True)
    os.makedirs(source.place, exist_ok=True)

    def one(item: "tuple[str, bool]") -> str:
        path, is_link = item
        name = os.path.relpath(path, source.path)
        place = os.path.join(source.place, name)
        if is_link:
            os.symlink(os.readlink(path), place)
            return f"link to {os.readlink(path)}  {name}\n"
        sha256 = copy_file(path, place, progress)
        compare(sha256, expected.pop(name, sha256), path, source)
        return f"{sha256}  {name}\n"

    with concurrent.futures.ThreadPoolExecutor(COPIES) as pool:
        lines = list(pool.map(one, tree(source.path)))
    if expected:
        missing = sorted(expected)[0]
        raise StageError(
            f"stage-wrong-checksum: {source.path}.sha256 lists {missing}, which is not in the folder"
        )
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def unpack(source: Source, path: str, progress: Progress) -> str:
    """By tar, which reads what is hashed here: the archive is read once, and needs no space on the node."""
    os.makedirs(source.place)
    command = ["tar", "--extract", "--directory", source.place, *source.tar_options]
    with tempfile.TemporaryFile() as said:  # a pipe that is full would stop it
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said)

        def give(piece: bytes) -> None:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # tar stops at the archive's end mark, or says why
                process.stdin.write(piece)
                process.stdin.flush()

        sha256 = read(path, progress, give)
        process.communicate()
        if process.returncode != 0:
            said.seek(0)
            refuse_tool("tar", said.read().decode(errors="replace"), source)
    unpacker = os.path.join(source.place, "bin", "conda-unpack")
    if os.path.exists(unpacker):  # of conda-pack: writes the new place into the environment's files
        done = subprocess.run([os.path.join(source.place, "bin", "python"), unpacker], stderr=subprocess.PIPE)
        if done.returncode != 0:
            refuse_tool("conda-unpack", done.stderr.decode(errors="replace"), source)
    return sha256


def unpack_image(source: Source, path: str, progress: Progress) -> str:
    image = source.place + ".image"
    sha256 = copy_file(path, image, progress)
    command = ["unsquashfs", "-no-progress", "-dest", source.place, image]
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except FileNotFoundError:
        raise StageError(f"stage-no-tool: unsquashfs, which unpacks {source.path}, is not on PATH") from None
    if done.returncode != 0:
        refuse_tool("unsquashfs", done.stderr.decode(errors="replace"), source)
    os.remove(image)
    return sha256


def refuse_tool(tool: str, said: str, source: Source) -> None:
    if "No space left" in said or "Disk quota" in said:
        raise OSError(errno.ENOSPC, said, source.place)
    last = ([line for line in said.splitlines() if line.strip()] or ["it gave no reason"])[0]
    raise StageError(f"stage-bad-archive: {tool} could not unpack {source.path}: {last}")


def compare(sha256: str, expected: str, path: str, source: Source) -> None:
    if sha256 != expected:
        raise StageError(
            f"stage-wrong-checksum: the SHA-256 sum of {path} is {sha256}, and {source.path}.sha256 says {expected}"
        )


def agree(source: Source, sha256: str) -> None:
    """All nodes and all attempts of the run have the same data: the first of them notes its checksum for all."""
    noted = os.path.join(os.environ["RUN"], "stage", source.name + ".sha256")
    os.makedirs(os.path.dirname(noted), exist_ok=True)
    first = first_to_say(noted, f"{sha256}  {source.path}\n").split()[0]
    if first != sha256:
        raise StageError(
            f"stage-changed: {source.path} is not what the run's first node had: "
            f"its SHA-256 sum is {sha256}, and was {first}"
        )


def first_to_say(path: str, text: str) -> str:
    """Write ``text`` unless another node has written that file; what it holds, which is always whole."""
    own = f"{path}.{socket.gethostname()}.{os.getpid()}"
    with open(own, "w") as file:
        file.write(text)
    try:
        os.link(own, path)
    except FileExistsError:
        with open(path) as file:
            return file.read()
    finally:
        os.remove(own)
    return text


def bring(source: Source) -> None:
    """Onto this node, whole or with an error; what is there from a killed attempt is used, if it is whole."""
    sha256 = source.staged()
    if sha256:
        say(f"{source.name}: found, sha256 {sha256[:16]}")
    else:
        remove(source.place)
        progress = Progress(source)
        path = source.cast if os.path.isfile(source.cast) else source.path
        if source.is_folder:
            sha256 = copy_folder(source, progress)
        elif source.is_image:
            sha256 = unpack_image(source, path, progress)
        elif source.tar_options is not None:
            sha256 = unpack(source, path, progress)
        else:
            sha256 = copy_file(path, source.place, progress)
        remove(source.cast)
        progress.end(sha256)
    if not source.is_folder:
        compare(sha256, source.expected().get("", sha256), source.path, source)
    agree(source, sha256)
    with open(source.note, "w") as file:
        json.dump({"mark": source.mark, "sha256": sha256}, file)


def make_folder(folder: str) -> None:
    """Ours alone: others may write to a node's /tmp as well."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if os.stat(folder).st_uid != os.getuid() or os.path.islink(folder):
            raise StageError(f"stage-no-folder: {folder} is somebody else's") from None
    except OSError as error:
        raise StageError(
            f"stage-no-folder: cannot make {folder}: {error.strerror}; the site's profile says where a node's disk is: "
            "[node] local_disk"
        ) from error
    os.makedirs(os.path.join(folder, ".staged"), exist_ok=True)
    owner = first_to_say(node_note(folder), socket.gethostname())
    if owner != socket.gethostname():
        raise StageError(
            f"stage-shared-disk: {folder} is the same directory on {owner}: local_disk must name a disk of each node's "
            "own; what all nodes see needs no staging"
        )


def node_note(folder: str) -> str:
    return os.path.join(folder, ".staged", "node")


def check_space(sources: "list[Source]", folder: str) -> None:
    """Before anything is copied. Of a compressed archive only its own size is known, which is the least it needs."""
    needed = sum(source.size for source in sources if not source.staged())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StageError(f"stage-no-space: {folder} needs {size(needed)}, and has {size(free)} free")


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def copy_results(paths: "list[str]", start: str, folder: str, *, replace: bool) -> int:
    """Files and folders below ``start`` to the same places below ``folder``; how many files were copied."""
    items, copied = [], 0
    for path in paths:
        is_link = os.path.islink(path)
        items += tree(path) if os.path.isdir(path) and not is_link else [(path, is_link)]
    for path, is_link in items:
        place = os.path.join(folder, os.path.relpath(path, start))
        if os.path.lexists(place) and (not replace or same(path, place)):
            continue
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copy2(path, place + ".part", follow_symlinks=not is_link)
        os.replace(place + ".part", place)
        copied += 1
    return copied


def same(path: str, place: str) -> bool:
    one, other = os.lstat(path), os.lstat(place)
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def stage_in(folder: str, results: str, *, only_check: bool = False) -> None:
    make_folder(folder)
    lines = [line.partition("=") for line in os.environ["STAGE_SOURCES"].splitlines()]
    sources = [Source(name, path, folder) for name, _, path in lines]
    check_space(sources, folder)
    if only_check:
        return
    for source in sources:
        bring(source)
    if os.path.isdir(results):  # of an attempt before: what it wrote is there again
        copy_results([results], results, folder, replace=False)


def stage_back(folder: str, results: str) -> None:
    """All of it, or what a node has left stays there. Who is told to end meanwhile goes on, until a KILL."""
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_IGN)
    try:
        with open(node_note(folder)) as file:
            if file.read() != socket.gethostname():
                return
    except FileNotFoundError:
        return
    patterns = [os.path.join(glob.escape(folder), line) for line in os.environ["STAGE_BACK"].splitlines()]
    found = sorted({path for pattern in patterns for path in glob.glob(pattern, recursive=True)})
    copied = copy_results(found, folder, results, replace=True)
    say(f"{copied} files copied to {results}")
    for path in [folder, *glob.glob(glob.escape(folder) + "-*")]:  # also what sbcast has left
        remove(path)


def main(do: str, node: str) -> int:
    folder, run = os.environ["RANKUP_STAGE"], os.environ["RUN"]
    results = os.path.join(run, "results", "node-" + node)
    try:
        if do == "back":
            stage_back(folder, results)
        else:
            stage_in(folder, results, only_check=do == "check")
        return 0
    except StageError as error:
        why = str(error)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        code = "stage-no-space" if full else "stage-failed"
        why = f"{code}: {error.filename or folder}: {error.strerror}"
    say(why)
    if do != "back":  # srun then ends the tasks of the other nodes: their errors are not the cause
        first_to_say(os.path.join(run, "why"), f"{socket.gethostname()}: {why}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
END_OF_PYTHON
  trap stage_back EXIT # however this script ends
  if ! { stage_here check && broadcast && on_all_nodes in; }; then
    say "$(cat "$RUN/why" 2>/dev/null || echo "not all nodes have the data")"
    finish failed 1
  fi
}
# In a job of SLURM one node reads, and sbcast sends it to the others. Otherwise, and if it fails, each node reads.
broadcast() {
  local source
  [ -n "${SLURM_JOB_ID:-}" ] && [ "${#HOSTS[@]}" -gt 1 ] && command -v sbcast >/dev/null || return 0
  for source in "${STAGE[@]}"; do
    [ ! -f "${source#*=}" ] || sbcast --force "${source#*=}" "$RANKUP_STAGE-${source%%=*}" ||
      say "sbcast failed: each node reads ${source#*=} by itself"
  done
  return 0
}
# What has been told to end ends no other step of the job: then this node copies at least its own.
stage_back() {
  trap - EXIT
  on_all_nodes back || stage_here back
}
stage_here() (export_stage "$1" && exec "$STAGE_PYTHON" "$RUN/stage.py" "$1" 0)
export_stage() { # check|in|back
  local sources patterns
  sources=$(printf '%s\n' "${STAGE[@]}")
  patterns=$(printf '%s\n' "${BACK[@]}")
  export STAGE_DO=$1 STAGE_SOURCES=$sources STAGE_BACK=$patterns
}

# ---- Proof ---------------------------------------------------------------------------------------------------------
# Before the first attempt: does this training give the same model if it is killed and resumed? On this node, in epochs of
# a few steps. A proof that cannot be made is a line in the log; only a resume that differs ends the job.
prove() { # SECONDS PYTHON RANKS COMMAND…: two starts may take SECONDS; 0: the job is too short for a proof
  local seconds=$1 python=$2 ranks=$3
  shift 3
  [ "$(wc -l <"$RUN/attempts")" -eq 1 ] || return
  if [ "$seconds" -eq 0 ]; then
    say "not proved: the job is shorter than an hour"
    return
  elif ! "$python" -c 'import rankup.verify, typer' 2>/dev/null; then
    say "not proved: $python has no rankup"
    return
  elif [ -f "$1" ] && ! grep -q rankup "$1"; then
    say "not proved: $1 does not use rankup"
    return
  fi
  say "does a resume give the same model? (--no-proof leaves this out)"
  rm -f "$RUN/logs/proof.json"
  # The proof itself names what a resume would lose, so its attempts go on.
  RANKUP_LOST=${RANKUP_LOST#stop} "$python" -m rankup verify --quick --budget "${seconds}s" --nproc-per-node "$ranks" \
    --runs-root "$RUN/proof" --out "$RUN/logs/proof.json" -- "$@" &
  wait "$!" || : # in the background, as the ranks: bash hears signals between commands only
  if grep -qs '"conclusion": "differs"' "$RUN/logs/proof.json"; then
    echo "a resume does not give the same model: the log names the cause; --no-proof trains all the same" >"$RUN/why"
    say "$(cat "$RUN/why")"
    finish failed 1
  fi
  rm -rf "$RUN/proof"
  grep -qs '"conclusion": "proved"' "$RUN/logs/proof.json" || say "not proved"
}

# ---- Where the ranks meet ------------------------------------------------------------------------------------------
# Sets MASTER_ADDR: the address of this host that the others reach. Packets to them leave from it, or it is that of
# INTERFACE. (A host's own name may resolve to 127.0.1.1 on itself.) Sets MASTER_PORT, which no other job can get.
choose_rendezvous() {
  local peer address python port
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
  MASTER_PORT=''
  for python in python3 python /usr/libexec/platform-python; do
    exec {port}< <(hold_port "$python")
    holder=$!
    read -r -t 60 MASTER_PORT <&"$port" && break
    exec {port}<&-
  done
  # Without any Python on this host: a port on which nobody listens now.
  while [ -z "$MASTER_PORT" ] || (exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do
    MASTER_PORT=$((15000 + (RANDOM * 32768 + RANDOM) % 17000))
  done
  export MASTER_ADDR MASTER_PORT
}
# A process binds the port, and holds it until this script ends. A server that sets SO_REUSEADDR, as torch's does, can
# still listen on it.
hold_port() { # PYTHON
  exec "$1" - "$$" 2>/dev/null <<'END_OF_PYTHON'
"""A port that no other job on this host gets: it is bound, and held until its user has ended.

Two jobs that derive a port from their ids may get the same one. So may two jobs that look for a free port at the same
time. If a port is bound, another job cannot bind it; but a server that sets SO_REUSEADDR, like torch's store, can still
listen on it.

Job scripts contain this file's text, and run it with any Python 3 of the node: use the standard library and old syntax
only. ``python ports.py PID`` prints the port, and holds it while PID is its parent.
"""

import os
import random
import socket
import sys
import time

# Below 32768: from there on Linux assigns ports to outgoing connections.
FIRST_PORT, LAST_PORT = 15000, 32767
_TRIES = 100


def hold_port() -> socket.socket:
    """A socket with its own port on all addresses of this host. Closing it releases the port. Raises ``OSError``."""
    tries = random.SystemRandom().sample(range(FIRST_PORT, LAST_PORT + 1), _TRIES)
    for port in [*tries, 0]:  # 0: any free port
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.bind(("", port))
        except OSError:
            holder.close()
            continue
        # Set this after the bind: before it, two holders could bind the same port, because neither of them listens.
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

# ---- The header of the log -----------------------------------------------------------------------------------------
print_header() { # PYTHON
  echo "nodes     ${HOSTS[*]}${QUEUE:+ (queue $QUEUE)}"
  echo "machine   $(uname -m), $(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) cores for this shell"
  echo "modules   ${LOADEDMODULES:-none}"
  command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus
  env | grep -E '^(NCCL|GLOO|FI|UCX|OMP|CUDA|MPICH)_|^MASTER_' | sort
  echo "python    $*"
}

# ---- Whether another attempt would get further ---------------------------------------------------------------------
# A program that could not be asked to save starts again from what it has saved by itself. If that is nothing, twice in a
# row, then no attempt will ever get further.
see_writes() { # just before the ranks are ended: did one of them write more to a disk than lines of output?
  local id
  # A line that is added to a file is a page to the disk, each time that the last one was written: 4 kB every few seconds.
  wrote=$(for id in $(marked); do cat "/proc/$id/io"; done 2>/dev/null |
    awk -v seconds="$SECONDS" '/^write_bytes:/ && $2 > 4194304 + 2048 * seconds { print "yes"; exit }')
}
# Whether any file is newer than the beginning of this attempt: where it runs, in its run directory and in PLACES. Files of
# another user or of rankup's own do not count, nor what Python compiles. No answer in time counts as progress.
# What --saves names decides alone, with the run's own snapshots.
made_progress() {
  local pattern place places=("$RUN") found seconds=$((STOP_BEFORE / 16 + 1))
  if [ "${#SAVES[@]}" -gt 0 ]; then
    mapfile -t places < <(for pattern in "${SAVES[@]}"; do compgen -G "$pattern"; done)
    found=$(timeout "$((seconds < 10 ? seconds : 10))" \
      find -H "${places[@]}" "$RUN/snapshots" -type f -newer "$RUN/attempts" -print -quit 2>/dev/null ||
      [ "$?" -ne 124 ] || echo late)
    [ -n "$found" ]
    return
  fi
  [ -z "$wrote" ] || return 0
  for place in "$PWD" "${PLACES[@]}"; do
    [ -d "$place" ] || place=${place%/*}
    [ ! -d "$place" ] || places+=("$place")
  done
  found=$(timeout "$((seconds < 10 ? seconds : 10))" find -H "${places[@]}" \
    \( \( -path "$RUNS/*" ! -path "$RUN" ! -path "$RUN/*" \) -o -path "$RUN/logs" -o -path "$RUN/records" \
    -o -path "$RUN/stage" -o -name .git -o -name __pycache__ \) -prune -o -type f -newer "$RUN/attempts" \
    -uid "$(stat -c %u "$RUN/attempts")" \
    ! \( -path "$RUN/*" ! -path "$RUN/*/*" \( -name 'agent*' -o -name 'exit_code' -o -name 'failure*' -o -name hosts \
    -o -name jobs -o -name listening -o -name 'no_progress' -o -name 'outcome*' -o -name rank.sh -o -name requeues \
    -o -name rsh -o -name sampler.sh -o -name stage.py -o -name STACKS -o -name '*STOP' \) \) \
    ! -samefile "/proc/$$/fd/1" ! -samefile "/proc/$$/fd/2" -print -quit 2>/dev/null ||
    [ "$?" -ne 124 ] || echo late)
  [ -n "$found" ]
}

# ---- When time runs out --------------------------------------------------------------------------------------------
# All processes of this attempt carry a mark: so `marked` finds also those that have outlived their parent.
mark_processes() {
  called='' terminated='' wrote=''
  requeues=$(cat "$RUN/requeues" 2>/dev/null || echo 0)
  RANKUP_MARK=$$.$(date +%s)/
  export RANKUP_MARK
}
# STOP asks the ranks to save and end: one line, why and until when. It is renamed into place, so that nobody reads half
# of it. Ranks look once a second and end with 0: after any other code torchrun would start them again.
ask_to_stop() { # WHY UNTIL
  [ -e "$RUN/STOP" ] && return
  echo "$1 $2" >"$RUN/.STOP" && mv "$RUN/.STOP" "$RUN/STOP"
  say "asked the ranks to save and stop ($1)"
}
# Processes that ignore the stop request are terminated shortly before the time limit. If no attempt may follow, they
# work on until the scheduler ends them.
last_call() {
  [ -n "$called" ] && return
  [ "$requeues" -ge "$MAX_REQUEUES" ] && [ "$ENDED_BY" = scheduler ] && return
  called=yes
  see_writes
  say "the ranks have not answered: this program could not be asked to save. It is terminated now, and starts again"
  say "from what it has saved by itself. (With rankup.should_stop() or run.steps(...) it would answer.)"
  end_ranks
}
# The ids of the processes on this host that carry this attempt's mark.
marked() {
  (
    mark=$RANKUP_MARK
    unset RANKUP_MARK # the processes that search have no mark
    grep -lz "^RANKUP_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n'
  )
}

# ---- One rank ------------------------------------------------------------------------------------------------------
# Only the parent of a rank knows when and how it has ended.
write_rank_script() {
  cat >"$RUN/rank.sh" <<'END_OF_SCRIPT'
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
END_OF_SCRIPT
}

# ---- What a node's processors do -----------------------------------------------------------------------------------
write_sampler_script() {
  cat >"$RUN/sampler.sh" <<'END_OF_SCRIPT'
#!/bin/sh
# Samples this node's processors until the process PARENT ends, for `rankup top` and `rankup report`: by rankup's own
# sampler if the program's PYTHON has rankup and psutil, else by nvidia-smi. A job requires neither.
parent=$1 python=$2
cd / || exit 0 # modules in the job's folder are not meant
case ${python##*/} in python*) ;; *) python=python ;; esac
if "$python" -c 'import rankup.monitor.sampler'; then
  exec "$python" -m rankup.monitor "$RUN" "$parent"
fi
query=timestamp,index,uuid,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu
TZ=UTC0 nvidia-smi "--query-gpu=$query" --format=csv,nounits --loop=10 \
  >>"$RUN/records/nvidia-smi-$(uname -n).csv" & # UTC, because its times name no zone
log=$!
trap 'kill "$log"; exit 0' TERM INT HUP
while kill -0 "$parent" && kill -0 "$log"; do sleep 1; done
kill "$log"
END_OF_SCRIPT
}

# An Open MPI that was not built for PBS reaches the nodes by ssh, unless it is given PBS's own remote shell. (One that was
# built for PBS does not use it.) pbs_tmrsh starts its command with nearly no environment, and without a shell.
use_pbs_for_mpirun() {
  if ! command -v pbs_tmrsh >/dev/null || [ -n "${OMPI_MCA_plm_rsh_agent:-}" ] || [[ $RUN == *[[:space:]:,]* ]]; then
    return
  fi
  cat >"$RUN/rsh" <<'END_OF_SCRIPT'
#!/bin/sh
# Open MPI removes a host's domain, and pbs_tmrsh knows a node by its full name only.
host=$(awk -v host="$1" '$0 == host || index($0, host ".") == 1 { print; exit }' "$PBS_NODEFILE")
host=${host:-$1}
shift
exec pbs_tmrsh "$host" /usr/bin/env "PBS_NODEFILE=$PBS_NODEFILE" "PATH=$PATH" "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" /bin/sh -c "$*"
END_OF_SCRIPT
  chmod 700 "$RUN/rsh"
  export OMPI_MCA_plm_rsh_agent=$RUN/rsh
}

# ---- Until the ranks end -------------------------------------------------------------------------------------------
# The ranks run in the background, since bash handles signals between commands only. USR1 comes before the time limit
# (--signal) or before a preemption, TERM when the job is cancelled or preempted; the script also watches the clock.
watch_ranks() {
  local now told=''
  trap 'ask_to_stop signal "$((END > 0 ? END : $(date +%s) + 30))"' USR1
  trap '[ -n "$terminated" ] || are_told_too || end_ranks; terminated=yes; ask_to_stop terminated "$(($(date +%s) + 10))"' TERM
  rm -f "$RUN"/trained-alone-*
  while kill -0 "$workers" 2>/dev/null; do
    sleep 1
    now=$(date +%s)
    [ "$SECONDS" -lt 60 ] || tell_separate_models
    [ "$END" -eq 0 ] || [ "$now" -lt "$((END - STOP_BEFORE))" ] || ask_to_stop time-limit "$((END - STOP_BEFORE / 4))"
    [ "$END" -eq 0 ] || [ "$now" -lt "$((END - STOP_BEFORE / 4))" ] || last_call
    [ -z "$called" ] || [ "$now" -lt "$((END - STOP_BEFORE / 8))" ] || kill -KILL "$workers" 2>/dev/null
  done
  wait "$workers"
  code=$?
  tell_separate_models
  # A torchrun that was killed leaves its ranks, which would train on beside the next attempt's.
  # shellcheck disable=SC2046
  kill -KILL $(marked) 2>/dev/null
}
tell_separate_models() { # once
  local alone=("$RUN"/trained-alone-*)
  if [ -n "$told" ] || [ "${#alone[@]}" -lt 2 ]; then return; fi
  told=yes
  say "${#alone[@]} processes each train their own model: they are in no process group. For one model: rankup.init() and"
  say "run.prepare(), or init_process_group() and DistributedDataParallel"
}
# If the program's Python has rankup, a hook in torch leaves a file for each rank that takes an optimizer's step without
# a process group. (watch_ranks counts them.)
add_torch_hook() { # PYTHON
  local hook
  hook=$(cd / && "$1" -c 'from rankup.run.separate_models import HOOK; print(HOOK)' 2>/dev/null) || return 0
  export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$hook
}

# ---- Was a node lost? ----------------------------------------------------------------------------------------------
# If a job loses its first node, PBS starts it again. If it loses another node, PBS does nothing, and the ranks fail or
# wait for each other: then this script requests a successor. PBS needs a minute to notice.
find_lost_nodes() {
  local i host patience silent=()
  lost=''
  if [ "$code" -eq 0 ] || [ -n "$called$terminated" ] || [ -e "$RUN/CANCELLED" ]; then return; fi
  for i in "${!HOSTS[@]}"; do
    if [ "$i" -eq 0 ] || [ -s "$RUN/agent-$i.code" ]; then continue; fi
    grep -Eqs 'exit status [1-9]|on spawn' "$RUN/agent-$i.reach" || silent+=("${HOSTS[i]}")
  done
  # Without agents (mpirun) nobody knows which node is silent: PBS may know already.
  patience=$SECONDS
  [ ! -e "$RUN/agents.end" ] || patience=$((SECONDS + 90))
  while [ "${#silent[@]}" -gt 0 ]; do
    for host in "${silent[@]}"; do
      if is_lost "$host"; then lost="$lost $host"; fi
    done
    if [ -n "$lost" ] || [ "$SECONDS" -ge "$patience" ]; then break; fi
    sleep 5
  done
  [ -n "$lost" ] || return
  say "the scheduler has lost a node of this job:$lost"
  # shellcheck disable=SC2086 # one or more
  [ -z "${BAD_NODES:-}" ] || note_bad_nodes "lost by PBS" $lost
}
# A node that PBS does not reach any more.
is_lost() { timeout 20 pbsnodes "$1" 2>/dev/null | grep -Eiq '^ *state = .*(down|unknown|stale)'; }

# ---- Which rank failed first ---------------------------------------------------------------------------------------
# A launcher ends with the code of any rank, often of one that it has ended itself because of another. Each rank that
# fails leaves a line in RUN/failures (see write_rank_script). The cause is, among the last start of the ranks, the
# earliest that was not told to end, and did not just lose its connection to another one.
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

# ---- How it ended --------------------------------------------------------------------------------------------------
# Rank 0 of a program that uses rankup has left a word: `requeue` means saved, and to be continued.
end_attempt() { # PYTHON
  local outcome without=0 why
  python=$1
  [ -z "${holder:-}" ] || kill "$holder" 2>/dev/null # the port is free again
  outcome=$(cat "$RUN/outcome" 2>/dev/null)
  [ -e "$RUN/CANCELLED" ] && finish cancelled 143
  case $code,$outcome,$called$terminated in
    0,failed,*) finish failed 1 ;;
    0,requeue,*) ;;
    # Many programs that are told to end save and end with 0: then only rank 0's word says that all is done.
    0,"done",* | 0,*,) finish "done" 0 ;;
    *)
      if [ -n "${lost:-}" ] && [ -z "$terminated" ]; then
        : # it is requeued below, and resumes from what it has saved by itself
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
  if [ -n "$called" ] && ! made_progress; then
    without=$(($(cat "$RUN/no_progress" 2>/dev/null || echo 0) + 1))
    echo "$without" >"$RUN/no_progress"
    say "this attempt has left no new file from which another one could go on"
  else
    rm -f "$RUN/no_progress"
  fi
  if [ -n "$terminated" ] || grep -qs '^user ' "$RUN/STOP"; then
    say "saved; \`rankup resume\` continues from there"
  elif [ "$requeues" -ge "$MAX_REQUEUES" ]; then
    say "it was requeued $requeues times, and no more than that is allowed: \`rankup resume\` continues it"
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
    requeue || say "the scheduler refused to requeue: \`rankup resume\` continues it"
  fi
  finish requeue 75
}

# How this script tells the ranks to end, and whether they are told by themselves when the script is told.
end_ranks() { kill -TERM "$workers" 2>/dev/null; }
# shellcheck disable=SC2317,SC2329 # a trap calls it
are_told_too() { false; }

# ---- The agents ----------------------------------------------------------------------------------------------------
# Starts the agent of this node. In a session of its own torchrun gets TERM once, from this script: PBS sends it to all of
# a task's session, and after a second one torchrun leaves its ranks before they have saved. If PBS KILLs this script, a
# guard ends the ranks: each has a session of its own, which ends with no other.
# shellcheck disable=SC2317,SC2329 # it is called on the nodes, where there are several
start_agent() {
  env -u RANKUP_MARK setsid bash -c "$(declare -f marked)
    RANKUP_MARK=$RANKUP_MARK
    cd /
    while kill -0 $$; do sleep 2; done
    kill -KILL \$(marked)" </dev/null >/dev/null 2>&1 &
  setsid bash -c "$(declare -f agent); agent" 2> >(quiet) &
}
# Copies what torchrun prints on stderr, without the stacks that it prints as it ends: the traceback of having been told to
# end, the errors of its own agent, which are those of waiting for the other nodes after its ranks have ended well (torch
# waits for 300 s), and the C++ frames below a warning of the connection to them.
# shellcheck disable=SC2317,SC2329 # it is called on the nodes, where there are several
quiet() {
  trap '' TERM INT HUP
  exec env -u RANKUP_MARK sed --unbuffered -e '/^Traceback (most recent call last):$/{' -e ':more' -e N \
    -e '/\n[ \t][^\n]*$/b more' -e '/\n[^\n]*SignalException: [^\n]*$/d' -e '}' \
    -e '/^E[0-9][^]]*\/elastic\/agent\/server\/api\.py:[0-9]*\] /d' \
    -e '/^Exception raised from /d' -e '/^frame #[0-9]*: /d' -e '/^<omitting python frames>$/d' >&2
}
# What a node has of its own, such as the GPUs that a hook of PBS has given it, or this script alone.
own_names() { echo 'PBS_NODENUM|PBS_TASKNUM|PBS_MOMPORT|PBS_JOBCOOKIE|PBS_JOBDIR|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK|HOSTNAME|TMPDIR|PWD|OLDPWD|SHLVL'; }
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
reach() { # NODE
  exec pbsdsh -n "$(awk -v host="${HOSTS[$1]}" '$0 == host { print NR - 1; exit }' "$PBS_NODEFILE")" \
    -- bash "$RUN/agent-$1.sh"
}
# Prints what the agents have printed since the last time. PBS puts what a task prints into the job's own output, which
# is seen after the job has ended: so each agent writes to a file. Opening it again makes NFS show what is new.
show() {
  local file size out
  for file in "$RUN"/logs/node-*.{log,err}; do
    size=$(wc -c 2>/dev/null <"$file") || continue
    [ "$size" -gt "${shown[$file]:-0}" ] || continue
    out=1
    [[ $file != *.err ]] || out=2
    tail -c "+$((${shown[$file]:-0} + 1))" "$file" | head -c "$((size - ${shown[$file]:-0}))" >&"$out"
    shown[$file]=$size
  done
}
# Tells all agents to end, by a file: it says how many seconds their ranks may take to save. (pbsdsh passes a TERM on to
# them, but does not wait for them; pbs_tmrsh does not even pass it on.)
end_agents() {
  local now left
  code=1
  [ -z "$ending" ] || return
  ending=$SECONDS now=$(date +%s)
  # Near the time limit only until this script continues without them.
  left=$((END - STOP_BEFORE / 8 - 2 - now))
  grace=$((now >= END || left > 35 ? 35 : left > 1 ? left : 1))
  echo "$grace" >"$RUN/agents.end"
}
# Whether a node has not said for a minute that it is alive, and the scheduler has lost it as well; while agents end, the
# scheduler's answer is enough.
is_silent() { # NODE
  local word
  word=$(cat "$RUN/agent-$1.alive" 2>/dev/null)
  [ "$word" = "${alive[$1]}" ] || heard[$1]=$SECONDS
  alive[$1]=$word
  [ -n "$ending" ] || [ "$((SECONDS - heard[$1]))" -ge 60 ] || return 1
  is_lost "${HOSTS[$1]}"
}
# Starts all agents at once. The first one that fails, or ends without a code, ends the others. Codes come through files,
# which NFS may show a minute late; pbsdsh ends with 0 whatever its task did, but prints that it failed or could not be
# started.
fan_out() {
  local pids=() late=() alive=() heard=() i said status code=0 ending='' grace
  local -A shown=()
  trap end_agents TERM
  for i in "${!HOSTS[@]}"; do
    late[i]=0 alive[i]='' heard[i]=$SECONDS
    reach "$i" >"$RUN/agent-$i.reach" 2>&1 &
    pids[i]=$!
  done
  while [ "${#pids[@]}" -gt 0 ]; do
    sleep 1
    show
    for i in "${!pids[@]}"; do
      if [ "$((SECONDS % 10))" -eq 0 ] && is_silent "$i"; then
        kill -KILL "${pids[i]}" 2>/dev/null
        wait "${pids[i]}" 2>/dev/null # or bash tells of a killed process, as if it were a rank
        unset "pids[i]"
        end_agents
        continue
      fi
      kill -0 "${pids[i]}" 2>/dev/null && continue
      said=$(cat "$RUN/agent-$i.code" 2>/dev/null)
      if [ -z "$said" ] && ! grep -Eqs 'exit status [1-9]|on spawn' "$RUN/agent-$i.reach"; then
        wait "${pids[i]}"
        status=$?
        # PBS ends it together with this script: then its agent is still running.
        if [ "$status" -eq 143 ] || grep -qs 'killing task' "$RUN/agent-$i.reach"; then end_agents; fi
        [ -z "$ending" ] || continue
        late[i]=$((late[i] + 1))
        [ "$status" -ne 0 ] || [ "${late[i]}" -gt 75 ] || continue
      fi
      unset "pids[i]"
      sed "s/^/node $i (${HOSTS[i]}): /" "$RUN/agent-$i.reach" >&2
      [ "$said" = 0 ] || end_agents
    done
    # The scheduler ends the other agents, with the job.
    [ -z "$ending" ] || [ "$((SECONDS - ending))" -lt "$((grace + 5))" ] || break
  done
  kill -TERM "${pids[@]}" 2>/dev/null
  show
  return "$code"
}

main "$@"
