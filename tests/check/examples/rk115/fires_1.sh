#!/bin/bash
#PBS -l ncpus=96,ngpus=8
PORT=29501
pbsdsh -n 0 -v /home/you/run.sh "tcp://$(hostname):$PORT"
