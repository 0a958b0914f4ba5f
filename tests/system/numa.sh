#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Where memory lies on a machine with two NUMA nodes: boots one, emulated by qemu, whose whole system is busybox and
# numa_probe.c, and takes the answer from its serial line. The kernel is Debian's for clouds, from /boot or where
# CNRE_GUEST_KERNEL says; a package that is only unpacked will do. Exit status 0 passed, 1 failed, 77 not possible here
# (the last line says why). Needs neither root nor KVM, and takes some 10 seconds.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
boot_limit=50 # seconds
skip() { echo "$1"; exit 77; }

for program in qemu-system-x86_64 busybox cpio; do
	command -v $program >/dev/null ||
		skip "no $program: apt-get install --no-install-recommends qemu-system-x86 busybox-static cpio"
done
! ldd "$(command -v busybox)" >/dev/null 2>&1 || skip 'busybox is not static: apt-get install --no-install-recommends busybox-static'
kernel=${CNRE_GUEST_KERNEL:-$(printf '%s\n' /boot/vmlinuz-*-cloud-amd64 | tail -n 1)}
[ -r "$kernel" ] || skip "no kernel for the guest: apt-get install linux-image-cloud-amd64, or set CNRE_GUEST_KERNEL to its vmlinuz"

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-test-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev}
${CC:-gcc} -std=c11 -D_GNU_SOURCE -I. -O2 -static -o "$root/bin/probe" tests/system/numa_probe.c shm/segment.c shm/numa.c \
	base/size.c || exit 1
cp "$(command -v busybox)" "$root/bin/busybox" || exit 1
cat >"$root/init" <<'end'
#!/bin/busybox sh
/bin/busybox mount -t proc p /proc
/bin/busybox mount -t sysfs s /sys
echo "huge pages of shared memory: by MADV_COLLAPSE"
/bin/probe
first=$?
echo "huge pages of shared memory: by advice"
echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled
/bin/probe
echo "guest ends with $first $?"
echo o >/proc/sysrq-trigger
/bin/busybox sleep 9
end
chmod 755 "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs" || exit 1

# The policy of the whole guest is left alone; of its huge pages half lie on each node.
timeout $boot_limit qemu-system-x86_64 -accel tcg,thread=multi -machine q35 -cpu max -smp 2,sockets=2,cores=1 -m 1G \
	-object memory-backend-ram,id=m0,size=512M -object memory-backend-ram,id=m1,size=512M \
	-numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1 -numa dist,src=0,dst=1,val=21 \
	-kernel "$kernel" -initrd "$work/initramfs" \
	-append 'console=ttyS0 quiet rdinit=/init panic=-1 hugepages=0:24,1:24 mitigations=off tsc=reliable random.trust_cpu=on' \
	-display none -no-reboot -nic none -serial stdio -monitor none </dev/null >"$work/serial" 2>"$work/errors"
status=$?
tr -d '\r' <"$work/serial" | grep -E '^(2 MiB|4 KiB|thp|node 2|huge|guest)|wrong$'
if ! tr -d '\r' <"$work/serial" | grep -q '^guest ends with '; then
	echo "the guest did not get to its end (qemu: $status)"
	tail -n 20 "$work/serial" "$work/errors"
	exit 1
fi
tr -d '\r' <"$work/serial" | grep -q '^guest ends with 0 0$'
