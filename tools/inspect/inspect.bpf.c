/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What runs in the kernel for cnre-inspect: it copies the arguments of probes and of reads into a ring, and keeps the leases
 * that are out. Nothing is decided here. All of it goes when the descriptors of cnre-inspect close, however it ends: nothing
 * is pinned, and no event is made in tracefs.
 *
 * The helpers that read memory of the kernel are there for programs under the GPL only, hence the second licence.
 */
#include "tools/inspect/kernel.h"

#include "tools/inspect/event.h"

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>

#define BPF_USDT_MAX_SPEC_CNT 1024        /* places of probes, over all files */

/* Of libbpf, in the order that they need. */
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENT_RING_BYTES);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENT_LOST_KINDS);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EVENT_PROCESSES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EVENT_DEVICES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EVENT_LEASES_MAX);
	__type(key, struct event_lease_key);
	__type(value, struct event_lease);
} leases SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, EVENT_STACKS_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, EVENT_STACK_DEPTH * sizeof(__u64));
} stacks SEC(".maps");

/* Layer and expert of what is loaded and was not leased since. From the start on, for a lease may come before publish is told. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, EVENT_UNUSED_MAX);
	__type(key, __u64);
	__type(value, __u32);
} unused SEC(".maps");

static __always_inline void lose(__u32 what, __u64 amount)
{
	__u64 *count = bpf_map_lookup_elem(&lost, &what);

	if (count)
		*count += amount;
}

static __always_inline struct event *begin(__u32 kind, __u32 flags)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof *event, 0);
	__u64 self = bpf_get_current_pid_tgid();

	if (!event) {
		lose(EVENT_LOST_RECORDS, 1);
		return NULL;
	}
	event->at_ns = bpf_ktime_get_ns();
	event->kind = kind;
	event->flags = flags;
	event->process = self >> 32;
	event->thread = (__u32)self;
	bpf_get_current_comm(event->comm, sizeof event->comm);
	for (int i = 0; i < EVENT_ARGUMENTS; i++)
		event->argument[i] = 0;
	return event;
}

static __always_inline __u64 expert_key(__u64 layer, __u64 expert)
{
	return (layer & 0xffffffff) << 32 | (expert & 0xffffffff);
}

/* Every probe but those of leases; which one it is, its cookie says. */
SEC("usdt")
int on_probe(struct pt_regs *ctx)
{
	struct event *event = begin((__u32)bpf_usdt_cookie(ctx), 0);
	long value;

	if (!event)
		return 0;
#pragma unroll
	for (int i = 0; i < EVENT_ARGUMENTS; i++)
		if (bpf_usdt_arg(ctx, i, &value) == 0)
			event->argument[i] = (__u64)value;
	if (event->kind == EVENT_LOAD_START) {
		__u64 key = expert_key(event->argument[2], event->argument[3]);
		__u32 one = 1;

		bpf_map_update_elem(&unused, &key, &one, BPF_ANY);
	}
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* ---- leases ---- */

/* For the first use of what was loaded: every other lease costs one look here. */
SEC("usdt")
int BPF_USDT(on_first_use, __u64 session, __u64 object, __u64 layer, __u64 expert)
{
	__u64 key = expert_key(layer, expert);
	struct event *event;

	if (!bpf_map_lookup_elem(&unused, &key))
		return 0;
	bpf_map_delete_elem(&unused, &key);
	event = begin(EVENT_FIRST_USE, 0);
	if (!event)
		return 0;
	event->argument[0] = session;
	event->argument[1] = object;
	event->argument[2] = layer;
	event->argument[3] = expert;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

SEC("usdt")
int BPF_USDT(on_lease_taken, __u64 session, __u64 object, __u64 layer, __u64 expert, __u64 cookie)
{
	struct event_lease_key key = {
		.cookie = cookie, .process = bpf_get_current_pid_tgid() >> 32, .object = (__u32)object};
	struct event_lease *old = bpf_map_lookup_elem(&leases, &key), lease;

	if (old) {
		__sync_fetch_and_add(&old->holders, 1);
		return 0;
	}
	lease.since_ns = bpf_ktime_get_ns();
	lease.session = (__u32)session;
	lease.layer = (__u32)layer;
	lease.expert = (__u32)expert;
	lease.thread = (__u32)bpf_get_current_pid_tgid();
	lease.stack = (__s32)bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	lease.holders = 1;
	if (bpf_map_update_elem(&leases, &key, &lease, BPF_ANY) != 0)
		lose(EVENT_LOST_LEASES, 1);
	return 0;
}

SEC("usdt")
int BPF_USDT(on_lease_released, __u64 session, __u64 object, __u64 cookie)
{
	struct event_lease_key key = {
		.cookie = cookie, .process = bpf_get_current_pid_tgid() >> 32, .object = (__u32)object};
	struct event_lease *lease = bpf_map_lookup_elem(&leases, &key);

	if (!lease)
		return 0;
	if (lease->holders > 1)
		__sync_fetch_and_add(&lease->holders, -1);
	else
		bpf_map_delete_elem(&leases, &key);
	return 0;
}

/* ---- the block layer ---- */

/* The inode whose page cache the bytes go to; 0: they go past it, into memory of the process or of the pool. */
static __always_inline __u64 cached_inode(struct bio *bio, __u32 device, __u32 *flags)
{
	struct bio_vec *vector = BPF_CORE_READ(bio, bi_io_vec);
	struct page *page = vector ? BPF_CORE_READ(vector, bv_page) : NULL;
	unsigned long mapping = page ? (unsigned long)BPF_CORE_READ(page, mapping) : 0;
	struct inode *inode;

	if (mapping == 0 || (mapping & KERNEL_MAPPING_MARKS) != 0)
		return 0;
	inode = BPF_CORE_READ((struct address_space *)mapping, host);
	if (!inode)
		return 0;
	if (BPF_CORE_READ(inode, i_rdev) == device) {
		*flags |= EVENT_CACHED | EVENT_METADATA;
		return 0;
	}
	/* Memory of a pool has an inode of its own, but not on this device. */
	if (BPF_CORE_READ(inode, i_sb, s_dev) != device)
		return 0;
	*flags |= EVENT_CACHED;
	return BPF_CORE_READ(inode, i_ino);
}

/* In the context of whoever reads; a read that was throttled, or is a driver's, comes from a thread of the kernel. */
SEC("raw_tp/block_bio_queue")
int on_read(struct bpf_raw_tracepoint_args *ctx)
{
	struct bio *bio = (struct bio *)ctx->args[0];
	struct task_struct *self = (struct task_struct *)bpf_get_current_task();
	__u32 process = bpf_get_current_pid_tgid() >> 32, flags = 0;
	__u32 device = BPF_CORE_READ(bio, bi_bdev, bd_dev);
	__u32 bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
	__u64 inode;
	struct event *event;

	if ((BPF_CORE_READ(bio, bi_opf) & KERNEL_OPERATION_MASK) != 0 || bytes == 0)
		return 0;
	if (!bpf_map_lookup_elem(&processes, &process) && !bpf_map_lookup_elem(&devices, &device))
		return 0;
	if ((BPF_CORE_READ(self, flags) & KERNEL_THREAD) != 0)
		flags |= EVENT_KERNEL;
	inode = cached_inode(bio, device, &flags);
	event = begin(EVENT_READ, flags);
	if (!event) {
		lose(EVENT_LOST_READ_BYTES, bytes);
		return 0;
	}
	event->argument[0] = device;
	event->argument[1] = BPF_CORE_READ(bio, bi_iter.bi_sector) * 512;
	event->argument[2] = bytes;
	event->argument[3] = inode;
	bpf_ringbuf_submit(event, 0);
	return 0;
}
