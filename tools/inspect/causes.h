/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a wait was for. A client's thread felt it from `begin` to `end`; meanwhile the expert's load went through its stages.
 * Each nanosecond of the wait has one cause, so the causes of a wait add up to it. Pure.
 */
#ifndef CNRE_TOOLS_INSPECT_CAUSES_H
#define CNRE_TOOLS_INSPECT_CAUSES_H

#include <stdint.h>

enum cause {
	CAUSE_QUEUE,                      /* its load had not begun: asked for, and not admitted yet */
	CAUSE_DISK,                       /* reads were out */
	CAUSE_VERIFY,                     /* read, and not published: digest, preparing, moving, the core thread's turn */
	CAUSE_SCHEDULER,                  /* READY was stored, and the thread did not run yet */
	CAUSE_UNKNOWN,                    /* no load was seen that this could be */
	CAUSES,
};

extern const char *const cause_name[CAUSES];

#define CAUSES_SKEW_NS 5000000u           /* a load that was published so shortly before the wait still explains it */

struct cause_stages {                     /* of the last load of the expert, CLOCK_MONOTONIC; 0: not yet */
	uint64_t start_ns, done_ns, publish_ns;
};

struct cause_wait {
	uint64_t begin_ns, end_ns;
};

/* stages NULL: no load was seen. The parts add up to the wait exactly. */
void causes_split(const struct cause_wait *wait, const struct cause_stages *stages, uint64_t ret_ns[CAUSES]);

#endif
