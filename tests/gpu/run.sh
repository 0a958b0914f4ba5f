#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks and measurements on this machine's GPU: tests/gpu/run.sh check | bench. make check-gpu and make bench-gpu call it.
# Skips with 77 and a reason where there is no driver or no GPU.
set -u
cd "$(dirname "$0")/../.." || exit 1
export CNRE_BUILD=${BUILD:-build}
program=$CNRE_BUILD/tests/gpu/$1-gpu
timeout -k 10 "${LIMIT:-300}" "$program" </dev/null
status=$?
if [ $status = 77 ]; then
	echo "$1-gpu: skipped: no GPU is to be used here"
elif [ $status = 0 ] && [ "$1" = bench ]; then
	bash tests/bench/vram.sh # with a manager and a client
	status=$?
fi
exit $status
