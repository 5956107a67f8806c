#!/bin/bash
trap 'rm -rf "$scratch"' EXIT
python train.py
