/* SPDX-License-Identifier: Apache-2.0 */
/* See causes.h. */
#include "tools/inspect/causes.h"

#include <stddef.h>
#include <string.h>

const char *const cause_name[CAUSES] = {"queue", "disk", "verify", "scheduler", "unknown"};

/* A stage that did not come, or not in order, ends with the wait; none begins before it. */
static uint64_t within(uint64_t at_ns, uint64_t from_ns, const struct cause_wait *wait)
{
	if (at_ns == 0 || at_ns > wait->end_ns)
		return wait->end_ns;
	return at_ns < from_ns ? from_ns : at_ns;
}

void causes_split(const struct cause_wait *wait, const struct cause_stages *stages, uint64_t ret_ns[CAUSES])
{
	uint64_t start_ns, done_ns, publish_ns;

	memset(ret_ns, 0, CAUSES * sizeof ret_ns[0]);
	if (wait->end_ns <= wait->begin_ns)
		return;
	/* One that was over long before is another one's, and one that began after is the next. */
	if (stages == NULL || stages->start_ns == 0 || stages->start_ns > wait->end_ns ||
	    (stages->publish_ns != 0 && stages->publish_ns + CAUSES_SKEW_NS < wait->begin_ns)) {
		ret_ns[CAUSE_UNKNOWN] = wait->end_ns - wait->begin_ns;
		return;
	}
	start_ns = within(stages->start_ns, wait->begin_ns, wait);
	done_ns = within(stages->done_ns, start_ns, wait);
	publish_ns = within(stages->publish_ns, done_ns, wait);
	ret_ns[CAUSE_QUEUE] = start_ns - wait->begin_ns;
	ret_ns[CAUSE_DISK] = done_ns - start_ns;
	ret_ns[CAUSE_VERIFY] = publish_ns - done_ns;
	ret_ns[CAUSE_SCHEDULER] = wait->end_ns - publish_ns;
}
