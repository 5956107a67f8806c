#!/bin/bash
DATA_PATH=<PATH_OF_THE_DATA> \ 
    (e.g., /scratch/data.txt)
python train.py --data "$DATA_PATH"
