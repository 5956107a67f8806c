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
