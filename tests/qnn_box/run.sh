#!/bin/sh
# A qnn drafter through Qualcomm's NPU compiler and emulator, in an environment of its own.
#
#   tests/qnn_box/run.sh CHECKPOINT [QUESTIONS]
#
# The bundle is exported with .venv (it needs PyTorch), then compiled and run in .venv-qnn. x86-64
# Linux with glibc 2.35; about 500 MB on disk.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
cd "$top"
bundle=build/qnn-drafter
rm -rf "$bundle"
.venv/bin/python -m export.drafter "$1" -o "$bundle" --target qnn --offline
if [ ! -x .venv-qnn/bin/python ]; then
    "${PYTHON:-python3.11}" -m venv .venv-qnn
fi
.venv-qnn/bin/pip install -q --disable-pip-version-check \
    onnxruntime==1.32.0 onnxruntime-qnn==2.7.0 numpy tokenizers==0.22.2 regex
.venv-qnn/bin/python tests/qnn_box/check.py "$bundle" ${2:+"$2"}
