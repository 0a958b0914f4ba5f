#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A minute of honest clients on a real manager while clients are killed and stopped and the budget moves; then the
# same with a budget that holds everything, and with managers killed where a keeper starts the next one. tests/soak/ says
# what must hold. Exit status 0 passed, 1 failed, 77 the program is missing.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
export CNRE_BUILD=$build
for program in soak cnre-managerd cnrectl cnre-gen; do
	[ -x "$build/$program" ] || { echo "$build/$program is not built"; exit 77; }
done
seconds=${SOAK_SECONDS:-30}

soak() # arguments...
{
	echo "soak $*"
	timeout -k 5 $((seconds + 150)) "$build/soak" "$@"
}

soak --seconds $((seconds / 2)) --kill-clients $((seconds * 3)) --stop-clients $seconds --stop-managers $((seconds / 2)) \
	--set-ram $((seconds / 4)) --seed 1 || exit 1
soak --seconds $((seconds / 4)) --kill-clients $seconds --fits --seed 2 || exit 1
if "$build/cnre-managerd" --help | grep -q -- --keeper; then
	soak --seconds $seconds --kill-managers 20 --kill-clients $seconds --stop-clients $seconds --seed 3 || exit 1
	soak --seconds $((seconds / 4)) --kill-managers 1 --fits --seed 4 || exit 1
else
	soak --seconds $((seconds / 4)) --manager --io --manager pool --seed 3 || exit 1
	echo 'managers were not killed: this cnre-managerd has no keeper'
fi
