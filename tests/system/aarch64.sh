#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The words that two processes share, compiled for aarch64 with and without its own atomics, and run under qemu's user
# mode: the same source, the same checks. It shows that nothing leans on x86's types or alignment. It is no proof about
# weak memory, since qemu on x86 keeps x86's order: that argument is in doc/protocol.md.
cd "$(dirname "$0")/../.." || exit 1
compiler=aarch64-linux-gnu-gcc
for tool in $compiler qemu-aarch64; do
	command -v $tool >/dev/null || {
		echo "no $tool: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
		exit 77
	}
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
for architecture in armv8-a armv8.1-a; do
	$compiler -std=c11 -D_GNU_SOURCE -I. -O2 -march=$architecture -pthread -static -o "$work/stress" tests/stress/stress_ring.c \
		shm/ring.c shm/futex.c shm/access_log.c base/check.c base/crash.c || exit 1
	result=$(timeout 120 qemu-aarch64 "$work/stress") || {
		echo "$architecture: $result"
		exit 1
	}
	echo "$architecture: $result"
done
