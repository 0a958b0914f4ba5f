/* SPDX-License-Identifier: Apache-2.0 */
/* The time in between: attaching, handing events to the verb, and keeping up with who comes and goes. */
#ifndef CNRE_TOOLS_INSPECT_WATCH_H
#define CNRE_TOOLS_INSPECT_WATCH_H

#include "tools/inspect/inspect.h"

#include <signal.h>

#define WATCH_REFRESH_NS 250000000LL      /* how often the manager is asked who is attached */
#define WATCH_REFRESH_SOON_NS 5000000LL   /* when somebody unknown was seen */
#define WATCH_REFRESH_LATER_NS 1000000000LL /* when it did not answer */
#define WATCH_LATER_MAX 8192u             /* events of somebody unknown, until it is known who that is */

struct watch {
	struct inspect *inspect;
	const volatile sig_atomic_t *stop;
	struct event *later;              /* [WATCH_LATER_MAX] */
	uint32_t later_count;
	int64_t asked_ns, asked_next_ns;
};

/* Programs, verb, probes: all of it, or none, with a message. Then events are kept from that moment on. */
int watch_open(struct watch *watch, struct inspect *inspect, const volatile sig_atomic_t *stop, char message[INSPECT_MESSAGE_BYTES]);
/* Until the time, or a signal. 1: a signal. */
int watch_until(struct watch *watch, int64_t until_ns);
void watch_close(struct watch *watch);

#endif
