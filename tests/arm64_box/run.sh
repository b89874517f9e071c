#!/bin/sh
# The runtime with a drafter bundle on emulated Raspberry Pi 4 and 5 cores, against this machine.
#
#   tests/arm64_box/run.sh BUNDLE [QUESTIONS]
#
# Needs a Debian (bookworm) host with apt and a network the first time; about 200 MB in build/arm64.
# Real aarch64 wheels run under qemu-user: cortex-a72 has no dot-product instructions, cortex-a76
# has. onnxruntime 1.23.2, because later wheels ask for instructions that these cores lack under
# emulation. Emulation proves instructions and results; its speed says nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
bundle=$(cd "$1" && pwd)
questions=${2:-50}
work=$top/build/arm64
python=${PYTHON:-$top/.venv/bin/python}
mkdir -p "$work" && cd "$work"

if [ ! -d root/usr ]; then
    mkdir -p root host apt/lists/partial apt/archives/partial apt/state
    : > apt/state/status
    arm() {
        apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
            -o Dir::State::lists="$work/apt/lists" -o Dir::Cache="$work/apt" \
            -o Dir::State::status="$work/apt/state/status" -o Acquire::Languages=none "$@"
    }
    arm update
    (cd apt/archives && arm download libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libssl3 libffi8 \
        libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 libcrypt1 \
        python3.11-minimal libpython3.11-minimal libpython3.11-stdlib)
    for package in apt/archives/*.deb; do dpkg -x "$package" root; done
    apt-get -q download qemu-user-static
    dpkg -x qemu-user-static_*.deb host
fi
if [ ! -d site/onnxruntime ]; then
    "$python" -m pip install -q --disable-pip-version-check --target site \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
        --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
        --python-version 3.11 --implementation cp --only-binary=:all: \
        onnxruntime==1.23.2 numpy==2.3.5 tokenizers==0.22.2 regex
fi

"$python" "$here/ask.py" "$bundle" x86.json "$questions"
failed=0
for core in cortex-a72 cortex-a76; do
    echo "== $core"
    PYTHONPATH=$work/site host/usr/bin/qemu-aarch64-static -L root -cpu "$core" \
        root/usr/bin/python3.11 "$here/ask.py" "$bundle" "$core.json" "$questions"
    "$python" "$here/compare.py" x86.json "$core.json" || failed=1
done
exit $failed
