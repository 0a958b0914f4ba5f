#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Death at every crash point that the sources name (base/crash.h, tests/crash/), in a build of its own that knows them;
# so it is the same whatever BUILD is, and runs once, beside the plain build. Exit status 0 passed, 1 failed, 77 skipped.
set -u
cd "$(dirname "$0")/../.." || exit 1
case ${BUILD:-build} in
*asan* | *tsan*) echo 'crash points are tried with the plain build'; exit 77 ;;
esac
unset MAKEFLAGS BUILD CFLAGS
exec timeout -k 5 280 make -s --no-print-directory -j2 crash
