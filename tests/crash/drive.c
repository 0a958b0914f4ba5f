/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of the points on the way of a failed load: the checkpoint lies on a drive that stops reading, the manager is
 * killed while it tells its clients so, and the drive heals. Root only, since it needs a drive of its own.
 */
#include "cnre/cnre.h"
#include "tests/crash/crash.h"
#include "tests/support/loop_disk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DRIVE_BYTES (48ull << 20)
#define BROKEN_FROM (1ull << 20)          /* the page cache holds what a restart reads: the headers */
#define TIMEOUT_NS 30000000000

/* Every expert either comes or fails as it should, however often the manager dies; then all come. 0, or what went wrong. */
static int use_broken_drive(struct crash *crash, struct cnre *client, struct loop_disk *disk)
{
	unsigned failed = 0;

	if (loop_disk_limit(disk, BROKEN_FROM) < 0)
		return 2;
	for (uint32_t object = 0; object < CRASH_LAYERS * CRASH_EXPERTS; object++) {
		struct cnre_expert expert;
		int r = cnre_acquire(client, object / CRASH_EXPERTS, object % CRASH_EXPERTS, TIMEOUT_NS, &expert);

		if (r == 0)
			(void)cnre_release(client, &expert);
		else if (r != -EIO)
			return 1;
		failed += r < 0;
	}
	if (loop_disk_limit(disk, 0) < 0 || failed == 0)
		return 2;
	return crash_work(crash, client, 0) == NULL ? 0 : 1;
}

static enum crash_result judge(struct crash *crash, struct loop_disk *disk)
{
	struct cnre *client;
	int r;

	if (crash_attach(crash, &client) != NULL)
		return CRASH_FAILED;
	r = use_broken_drive(crash, client, disk);
	cnre_detach(client);
	if (r == 2 || !crash_was_reached(crash))
		return CRASH_NOT_REACHED;
	(void)snprintf(crash->reason, sizeof crash->reason, "%s", r != 0 ? "a client got another error than EIO" : "something is lost");
	return r == 0 && crash_is_clean(crash, 0, 0) ? CRASH_OK : CRASH_FAILED;
}

enum crash_result crash_drive_point(struct crash *crash, const char *point, unsigned pass)
{
	char model[sizeof crash->daemon.model];
	enum crash_result result = CRASH_SKIPPED;
	struct loop_disk disk;
	const char *why;

	if (!daemon_has_keeper()) {
		(void)snprintf(crash->reason, sizeof crash->reason, "this cnre-managerd has no keeper");
		return CRASH_SKIPPED;
	}
	why = loop_disk_open(&disk, DRIVE_BYTES, 512, 4096);
	if (why != NULL) {
		(void)snprintf(crash->reason, sizeof crash->reason, "%s", why);
		return CRASH_SKIPPED;
	}
	(void)snprintf(model, sizeof model, "%s", crash->daemon.model);
	(void)snprintf(crash->daemon.model, sizeof crash->daemon.model, "%s/model", LOOP_DISK_PATH);
	result = CRASH_FAILED;
	if (crash_generate(crash) == 0) {
		sync(); /* what is dirty could not be written behind the break */
		if (crash_start_dying_manager(crash, point, pass) == 0)
			result = judge(crash, &disk);
		(void)daemon_stop(&crash->daemon, 20);
	}
	(void)snprintf(crash->daemon.model, sizeof crash->daemon.model, "%s", model);
	loop_disk_close(&disk);
	return result;
}
