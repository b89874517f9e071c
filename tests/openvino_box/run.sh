#!/bin/sh
# A static-bucket drafter through the OpenVINO provider, in an environment of its own.
#
#   tests/openvino_box/run.sh CHECKPOINT [DEVICE [QUESTIONS LIMIT]]   DEVICE: CPU, GPU or NPU
#
# QUESTIONS, a file for the gate, is asked up to LIMIT times: chance makes about 0.5 points of the
# loss of F1 over the 345 built-in questions, 0.2 over 1,500.
#
# The bundle is exported with .venv (it needs PyTorch), then run in .venv-openvino, whose
# onnxruntime wheel excludes the others. About 700 MB on disk.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
cd "$top"
bundle=build/openvino-drafter
rm -rf "$bundle"
.venv/bin/python -m export.drafter "$1" -o "$bundle" --target openvino --offline \
    --threads "$(nproc)" --seconds 10 \
    ${3:+--gate "$3" --gate-limit "$4"}
if [ ! -x .venv-openvino/bin/python ]; then
    "${PYTHON:-python3.11}" -m venv .venv-openvino
fi
.venv-openvino/bin/pip install -q --disable-pip-version-check \
    onnxruntime-openvino==1.24.1 numpy tokenizers==0.22.2 regex
.venv-openvino/bin/python tests/openvino_box/check.py "$bundle" "${2:-CPU}" ${3:+"$3" "$4"}
