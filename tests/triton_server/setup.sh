#!/bin/sh
# A venv with NVIDIA's Triton Inference Server in it, for tests/test_triton.py: .venv-triton
#
# Debian's own Python, because Triton's Python backend loads the interpreter as a shared library and
# crashes under a pyenv build. Needs python3-venv; about 450 MB on disk; x86-64 with glibc >= 2.35.
set -eu
cd "$(dirname "$0")/../.."
target=${1:-.venv-triton}
[ -x "$target/bin/python" ] || /usr/bin/python3 -m venv "$target"
"$target/bin/pip" install --quiet --disable-pip-version-check \
    nvidia-pytriton==0.7.0 "numpy<2" onnxruntime==1.32.0 "setuptools<81"
"$target/bin/python" -c "import pytriton, onnxruntime; print('Triton is ready in $target')"
