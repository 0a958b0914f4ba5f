/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs in the kernel tell cnre-inspect: one record for each probe of provider `cnre` that fired, and for each
 * read that was handed to the block layer. Compiled by both sides, so it includes nothing but the kernel's integers.
 */
#ifndef CNRE_TOOLS_INSPECT_EVENT_H
#define CNRE_TOOLS_INSPECT_EVENT_H

#include <linux/types.h>

#define EVENT_ARGUMENTS 8
#define EVENT_COMM_BYTES 16
#define EVENT_RING_BYTES (8u << 20)       /* some 70,000 records; what does not fit is counted */
#define EVENT_PROCESSES_MAX 1024u         /* whose reads are told wherever they go */
#define EVENT_DEVICES_MAX 64u             /* whose reads are told whoever asks */
#define EVENT_LEASES_MAX 65536u
#define EVENT_UNUSED_MAX 65536u           /* experts loaded and not used yet */
#define EVENT_STACKS_MAX 4096u
#define EVENT_STACK_DEPTH 32

/* All but the first and the last are probes of base/probes.def. */
enum event_kind {
	EVENT_READ,                       /* device, first byte on it, bytes, inode of the page cache's file or 0 */
	EVENT_LOAD_START,
	EVENT_LOAD_CHUNK,
	EVENT_LOAD_DONE,
	EVENT_LOAD_VERIFY,
	EVENT_PUBLISH,
	EVENT_ADMIT,
	EVENT_EVICT,
	EVENT_REJECT,
	EVENT_RESTART,
	EVENT_MISS,
	EVENT_JOIN,
	EVENT_DONE,
	EVENT_FIRST_USE,                  /* the first lease on an expert since its load began */
	EVENT_KINDS,
};

enum event_flags {
	EVENT_CACHED = 1,                 /* into the page cache */
	EVENT_METADATA = 2,               /* the file system's own, of the device */
	EVENT_KERNEL = 4,                 /* by a thread of the kernel: throttled, or a driver's */
};

struct event {
	__u64 at_ns;                      /* CLOCK_MONOTONIC */
	__u32 kind, flags;
	__u32 process, thread;
	char comm[EVENT_COMM_BYTES];
	__u64 argument[EVENT_ARGUMENTS];
};

/* Per processor, and added up: what did not get through. */
enum event_lost { EVENT_LOST_RECORDS, EVENT_LOST_READ_BYTES, EVENT_LOST_LEASES, EVENT_LOST_KINDS };

struct event_lease_key {
	__u64 cookie;
	__u32 process, object;
};

struct event_lease {
	__u64 since_ns;
	__u32 session, layer, expert, thread;
	__s32 stack;                      /* in the map of stacks, or -errno */
	__u32 holders;                    /* leases under the same cookie, since the first */
};

#endif
