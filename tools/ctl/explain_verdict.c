/* SPDX-License-Identifier: Apache-2.0 */
/* See explain_verdict.h. */
#include "tools/ctl/explain_verdict.h"

#include "tools/ctl/explain_vram.h"
#include "tools/ctl/format.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

const char *explain_limit_name(enum explain_limit limit)
{
	static const char *const names[] = {[EXPLAIN_IDLE] = "idle",
					    [EXPLAIN_COMPUTE] = "compute",
					    [EXPLAIN_DISK] = "disk",
					    [EXPLAIN_CAPACITY] = "capacity",
					    [EXPLAIN_VRAM] = "vram"};

	return names[limit];
}

/* A counter that went back is of another client, or of nobody. */
static uint64_t less(uint64_t after, uint64_t before)
{
	return after > before ? after - before : 0;
}

static double less_s(double after, double before)
{
	return after > before ? after - before : 0;
}

static const struct explain_client *find_client(const struct explain_sample *sample, uint64_t session)
{
	static const struct explain_client none;

	for (uint32_t i = 0; i < sample->client_count; i++)
		if (sample->client[i].session == session)
			return &sample->client[i];
	return &none;
}

static uint32_t count_active(const struct explain_sample *before, const struct explain_sample *after)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < after->client_count; i++) {
		const struct explain_client *now = &after->client[i], *then = find_client(before, now->session);

		count += now->accesses != then->accesses || now->felt_wait_s > then->felt_wait_s;
	}
	return count;
}

static void subtract(const struct explain_sample *before, const struct explain_sample *after, struct explain_verdict *verdict)
{
	verdict->seconds = after->uptime_s - before->uptime_s;
	verdict->clients = count_active(before, after);
	verdict->accesses = less(after->accesses, before->accesses);
	verdict->misses = less(after->misses, before->misses);
	verdict->loads = less(after->loads, before->loads);
	verdict->bytes = less(after->bytes_read, before->bytes_read);
	verdict->evictions = less(after->evictions, before->evictions);
	verdict->vram_hits = less(after->vram.hits, before->vram.hits);
	verdict->vram_uploads = less(after->vram.uploads, before->vram.uploads);
	verdict->felt_wait_s = less_s(after->felt_wait_s, before->felt_wait_s);
	verdict->service_s = less_s(after->service_s, before->service_s);
}

/* Nothing was missing in memory and nothing was read, so whoever waited did so for a copy in VRAM. */
static int waits_for_vram(const struct explain_sample *after, const struct explain_verdict *verdict)
{
	return after->vram.is_on && verdict->misses == 0 && verdict->loads == 0 && after->loads_in_flight + after->loads_queued == 0;
}

/* Clients that ended meanwhile have waited, too, and stand in no list: then it was one of them at least. */
static void estimate(const struct explain_sample *after, struct explain_verdict *verdict)
{
	uint32_t clients = verdict->clients > 0 ? verdict->clients : 1;
	uint64_t mean = after->resident_objects > 0 ? after->resident_bytes / after->resident_objects : 0;
	double waiting = verdict->felt_wait_s / (verdict->seconds * clients), left = -1;

	verdict->waiting = waiting < 1 ? waiting : 1;
	verdict->has_room = verdict->evictions == 0 && less(after->budget_bytes, after->resident_bytes) >= mean;
	if (verdict->has_room)
		left = 1;
	else if (after->curve_known && after->miss_share_now > 0)
		left = after->miss_share_double / after->miss_share_now;
	verdict->double_ram = left < 0 ? -1 : verdict->waiting * (left < 1 ? left : 1);
	verdict->double_drive = verdict->waiting * EXPLAIN_DRIVE_FACTOR;
	if (waits_for_vram(after, verdict))
		verdict->double_ram = verdict->double_drive = verdict->waiting;
}

static int is_stuck(const struct explain_sample *after, const struct explain_verdict *verdict)
{
	return verdict->accesses == 0 && verdict->felt_wait_s <= 0 && after->loads_in_flight + after->loads_queued > 0;
}

static enum explain_limit limit_of(const struct explain_sample *after, const struct explain_verdict *verdict)
{
	if (is_stuck(after, verdict))
		return EXPLAIN_DISK;
	if (verdict->accesses == 0 && verdict->felt_wait_s <= 0)
		return EXPLAIN_IDLE;
	if (verdict->waiting < EXPLAIN_WAITING_MIN)
		return EXPLAIN_COMPUTE;
	if (waits_for_vram(after, verdict))
		return EXPLAIN_VRAM;
	if (verdict->double_ram >= 0 && verdict->double_ram <= verdict->double_drive)
		return EXPLAIN_CAPACITY;
	return EXPLAIN_DISK;
}

/* ---- words ---- */

static void say_compute(const struct explain_sample *after, struct explain_verdict *verdict)
{
	(void)snprintf(verdict->why, sizeof verdict->why,
		       "clients waited %.1f %% of their time for experts: the rest is their own computation%s", verdict->waiting * 100,
		       after->resident_objects >= after->object_count && after->object_count > 0 ? "; every expert is resident" : "");
	(void)snprintf(verdict->advice, sizeof verdict->advice,
		       "neither memory nor drives would bring more than %.1f %%: faster kernels, more threads or batches would",
		       verdict->waiting * 100);
}

static void say_vram(struct explain_verdict *verdict)
{
	(void)snprintf(verdict->why, sizeof verdict->why,
		       "clients waited %.0f %% of their time for experts to come into VRAM: none was missing in memory, and %" PRIu64
		       " were copied",
		       verdict->waiting * 100, verdict->vram_uploads);
	(void)snprintf(verdict->advice, sizeof verdict->advice,
		       "neither memory nor drives would bring anything: more VRAM would (cnrectl set vram SIZE), or engines that take the "
		       "copy in memory and do not wait");
}

static void say_capacity(const struct explain_sample *after, struct explain_verdict *verdict)
{
	char budget[2][FORMAT_BYTES], all[FORMAT_BYTES];

	(void)snprintf(verdict->why, sizeof verdict->why,
		       "clients waited %.0f %% of their time, mostly for experts that were resident before and had to go: %s of "
		       "memory hold a part of what is used again",
		       verdict->waiting * 100, format_bytes(after->budget_bytes, budget[0]));
	(void)snprintf(verdict->advice, sizeof verdict->advice,
		       "with %s they would wait about %.0f %%, were it divided evenly and LRU; drives of twice the speed leave %.0f %%; all "
		       "experts are %s: cnrectl set ram SIZE, or fewer models",
		       format_bytes(2 * after->budget_bytes, budget[1]), verdict->double_ram * 100, verdict->double_drive * 100,
		       format_bytes(after->all_bytes, all));
}

static void say_ram_of_disk(const struct explain_sample *after, const struct explain_verdict *verdict, char *text, size_t bytes)
{
	char size[FORMAT_BYTES];

	if (verdict->has_room)
		(void)snprintf(text, bytes, "more memory brings nothing yet, there is room: these are first reads (cnrectl warm)");
	else if (verdict->double_ram < 0)
		(void)snprintf(text, bytes, "what more memory would bring is not known yet");
	else
		(void)snprintf(text, bytes, "with %s of memory they would still wait about %.0f %%, were it divided evenly and LRU",
			       format_bytes(2 * after->budget_bytes, size), verdict->double_ram * 100);
}

/* The drive that gave most, or one that is not well. */
static uint32_t worst_drive(const struct explain_sample *before, const struct explain_sample *after)
{
	uint64_t most = 0;
	uint32_t worst = 0;

	for (uint32_t i = 0; i < after->drive_count; i++) {
		uint64_t bytes = i < before->drive_count ? less(after->drive[i].bytes, before->drive[i].bytes) : 0;

		if (strcmp(after->drive[i].state, "hangs") == 0)
			return i;
		if (bytes > most) {
			most = bytes;
			worst = i;
		}
	}
	return worst;
}

static void say_disk(const struct explain_sample *before, const struct explain_sample *after, struct explain_verdict *verdict)
{
	const struct explain_drive *drive = &after->drive[worst_drive(before, after)];
	char ram[EXPLAIN_TEXT_BYTES / 2], service[FORMAT_BYTES];

	if (is_stuck(after, verdict)) {
		(void)snprintf(verdict->why, sizeof verdict->why, "reads are out, and none came back: drive %.60s is %.15s",
			       drive->name, drive->state);
		(void)snprintf(verdict->advice, sizeof verdict->advice, "see cnrectl drives, and the drive itself");
		return;
	}
	say_ram_of_disk(after, verdict, ram, sizeof ram);
	(void)snprintf(verdict->why, sizeof verdict->why,
		       "clients waited %.0f %% of their time for reads: the drives gave %.1f MB/s, %s an expert; most came from %.60s (%.15s)",
		       verdict->waiting * 100, (double)verdict->bytes / verdict->seconds / 1e6,
		       format_average(verdict->service_s, verdict->loads, service), drive->name, drive->state);
	(void)snprintf(verdict->advice, sizeof verdict->advice,
		       "drives of twice the speed, or a mirror on another, leave about %.0f %%; %s", verdict->double_drive * 100, ram);
}

int explain_judge(const struct explain_sample *before, const struct explain_sample *after, struct explain_verdict *ret_verdict)
{
	struct explain_verdict verdict = {.limit = EXPLAIN_IDLE};

	if (!(after->uptime_s > before->uptime_s) || after->loads < before->loads)
		return -ESTALE;
	subtract(before, after, &verdict);
	estimate(after, &verdict);
	verdict.limit = limit_of(after, &verdict);
	explain_vram_say(&after->vram, verdict.vram, sizeof verdict.vram);
	switch (verdict.limit) {
	case EXPLAIN_IDLE:
		(void)snprintf(verdict.why, sizeof verdict.why, "nobody looked an expert up");
		(void)snprintf(verdict.advice, sizeof verdict.advice, "ask while engines compute, or longer: --seconds");
		break;
	case EXPLAIN_COMPUTE:
		say_compute(after, &verdict);
		break;
	case EXPLAIN_CAPACITY:
		say_capacity(after, &verdict);
		break;
	case EXPLAIN_DISK:
		say_disk(before, after, &verdict);
		break;
	case EXPLAIN_VRAM:
		say_vram(&verdict);
		break;
	}
	*ret_verdict = verdict;
	return 0;
}
