/* SPDX-License-Identifier: Apache-2.0 */
/* Drives that do not answer; see stall.h. */
#include "manager/stall.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

static double seconds_since(int64_t since_ns)
{
	return (double)(cnre_clock_now_ns() - since_ns) / 1e9;
}

void stall_begin(struct stalls *stalls, uint32_t drive, const char *path, int64_t since_ns)
{
	struct stall *stall = &stalls->drive[drive];

	CNRE_CHECK(drive < LOADER_DRIVES_MAX);
	stalls->reads++;
	if (stall->reads++ > 0) {
		if (since_ns < stall->since_ns)
			stall->since_ns = since_ns;
		return;
	}
	stall->since_ns = since_ns;
	stall->path = path;
	cnre_log(
		CNRE_LOG_ERROR,
		"drive of %.300s: no answer for %.1f s: what needs it is read from other replicas or fails (--read-timeout), nothing more is sent to it, "
		"other drives go on: check the drive, its cable or its network; reads begin again when it answers",
		path, seconds_since(since_ns));
}

void stall_end(struct stalls *stalls, uint32_t drive)
{
	struct stall *stall = &stalls->drive[drive];

	CNRE_CHECK(drive < LOADER_DRIVES_MAX && stall->reads > 0 && stalls->reads > 0);
	stalls->reads--;
	if (--stall->reads == 0)
		cnre_log(CNRE_LOG_NOTICE, "drive of %.300s: it answers again, after %.1f s", stall->path,
			 seconds_since(stall->since_ns));
}
