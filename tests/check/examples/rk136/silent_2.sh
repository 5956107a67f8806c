#!/bin/bash
# a comment \ 
cat <<'EOF'
a \ 
b
EOF
python train.py
