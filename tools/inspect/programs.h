/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programs in the kernel (inspect.bpf.c): loaded, attached, and what they tell handed on. The only file that knows libbpf.
 * Everything it makes in the kernel ends with its descriptors.
 */
#ifndef CNRE_TOOLS_INSPECT_PROGRAMS_H
#define CNRE_TOOLS_INSPECT_PROGRAMS_H

#include "tools/inspect/event.h"
#include "tools/inspect/preflight.h"

#include <stdint.h>

struct programs;

enum programs_probe_at { PROGRAMS_ON_PROBE, PROGRAMS_ON_FIRST_USE, PROGRAMS_ON_LEASE_TAKEN, PROGRAMS_ON_LEASE_RELEASED, PROGRAMS };

struct programs_setup {
	const struct preflight *preflight; /* of this machine; for messages */
	void (*take)(void *context, const struct event *event);
	void *context;
};

/* Loads what there is. 0, or -errno with a message. */
int programs_open(struct programs **ret_programs, const struct programs_setup *setup, char message[PREFLIGHT_MESSAGE_BYTES]);
struct programs *programs_close(struct programs *programs); /* NULL is fine */

/* Whose reads are told. 0 or -errno: -E2BIG beyond the bounds of event.h. */
int programs_watch_process(struct programs *programs, uint32_t process);
int programs_watch_device(struct programs *programs, uint64_t device);

int programs_attach_reads(struct programs *programs, char message[PREFLIGHT_MESSAGE_BYTES]);
/* To cnre:probe in a file, in every process that runs it now or later. `shown` is the path that people know. */
struct programs_place {
	const char *path, *shown, *probe;
};
int programs_attach_probe(struct programs *programs, enum programs_probe_at at, const struct programs_place *place,
			  enum event_kind kind, char message[PREFLIGHT_MESSAGE_BYTES]);

/* Hands on what came, after at most so long. 0, -EINTR, or -errno. */
int programs_poll(struct programs *programs, int timeout_ms);
void programs_lost(const struct programs *programs, uint64_t ret_lost[EVENT_LOST_KINDS]);

/* The leases that are out. The function returns 0 to go on. */
int programs_leases(const struct programs *programs,
		    int (*each)(void *context, const struct event_lease_key *key, const struct event_lease *lease), void *context);
/* Addresses of a stack, innermost first; how many. */
uint32_t programs_stack(const struct programs *programs, int32_t stack, uint64_t ret_address[EVENT_STACK_DEPTH]);

#endif
