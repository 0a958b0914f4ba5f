/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the kernel what the segments cost, and holding the residents to the budget; see measure.h. */
#include "manager/measure.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "manager/manager.h"
#include "manager/pool.h"
#include "manager/residency.h"
#include "manager/session.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define STAT_BLOCK_BYTES 512u /* st_blocks counts in these, whatever the file system */

/* ---- asking ---- */

static uint64_t backed_bytes(const struct cnre_segment *segment)
{
	struct stat status;

	if (segment == NULL || segment->fd < 0)
		return 0;
	return fstat(segment->fd, &status) < 0 ? segment->bytes : (uint64_t)status.st_blocks * STAT_BLOCK_BYTES;
}

static uint64_t measure_pool(const struct manager *manager, const struct pool_status *status)
{
	uint64_t bytes = 0;

	for (uint32_t s = 0; s < status->segments_made; s++)
		bytes += backed_bytes(pool_segment(manager->pool, s));
	return bytes + bytes / 100 * manager->measure.test_percent;
}

/* What the manager keeps in shared memory beside the pool: its own words, and a channel and a ledger for each client. */
static uint64_t measure_own(const struct manager *manager)
{
	const struct session_table *table = manager->sessions;
	uint64_t bytes = backed_bytes(&manager->page_segment) + backed_bytes(&manager->counters_segment) +
			 backed_bytes(&manager->state_segment);

	for (uint32_t i = 0; i < manager->model_count; i++)
		bytes += backed_bytes(&manager->model[i].catalog_segment) +
			 backed_bytes(&manager->model[i].directory_segment);
	for (uint32_t i = 0; i < table->active_count; i++)
		bytes += backed_bytes(&table->active[i]->channel_segment) +
			 backed_bytes(&table->active[i]->ledger_segment);
	return bytes;
}

/* Heap, stacks and tables: resident pages that are of no file. 0 or -1 (no descriptor free now: the old figure stays). */
static int measure_anonymous(uint64_t *ret_bytes)
{
	unsigned long long resident, shared;
	char text[128];
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof text - 1);
	(void)close(fd);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	if (sscanf(text, "%*u %llu %llu", &resident, &shared) != 2 || shared > resident)
		return -1;
	*ret_bytes = (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
	return 0;
}

/* ---- judging ---- */

/* Right whether the excess stays as it is (then less of it is lent out) or grows and shrinks with the pool. */
static uint64_t bytes_that_fit(uint64_t budget_bytes, uint64_t planned_bytes, uint64_t measured_bytes,
			       uint64_t allowed_bytes)
{
	uint64_t excess_bytes = measured_bytes - allowed_bytes;
	uint64_t less_excess = budget_bytes > excess_bytes ? budget_bytes - excess_bytes : 0;
	/* In pages, so that the product cannot wrap; rounded down. */
	uint64_t in_proportion = (budget_bytes / CNRE_PAGE_BYTES) * (planned_bytes / CNRE_PAGE_BYTES) /
				 (measured_bytes / CNRE_PAGE_BYTES + 1) * CNRE_PAGE_BYTES;

	return less_excess < in_proportion ? less_excess : in_proportion;
}

static void begin_episode(struct manager *manager, uint64_t planned_bytes, uint64_t budget_bytes)
{
	struct measure *measure = &manager->measure;
	char measured[16], planned[16], budget[16], kept[16];

	measure->overshooting = 1;
	cnre_counter_add(&manager->counters->overshoots, 1);
	cnre_log(
		CNRE_LOG_WARNING,
		"memory: the kernel counts %s (%llu bytes) for the pool, %s (%llu bytes) were planned, the budget is %s: "
		"experts are held within %s while this lasts; to choose it yourself, cnrectl set ram %llu or less",
		cnre_size_format(measure->pool_bytes, measured, sizeof measured),
		(unsigned long long)measure->pool_bytes, cnre_size_format(planned_bytes, planned, sizeof planned),
		(unsigned long long)planned_bytes, cnre_size_format(budget_bytes, budget, sizeof budget),
		cnre_size_format(measure->held_to_bytes, kept, sizeof kept),
		(unsigned long long)measure->held_to_bytes);
}

static void end_episode(struct manager *manager)
{
	struct measure *measure = &manager->measure;

	measure->overshooting = 0;
	measure->held_to_bytes = UINT64_MAX;
	residency_hold_to(manager, RESIDENCY_HOLD_MEASURE, UINT64_MAX);
	cnre_log(CNRE_LOG_NOTICE, "memory: the pool takes what was planned again: the whole budget is used");
}

/*
 * What the pool may cost: the budget in force. The one decided at the start is no more than all experts need; where they
 * need less than every limit allows, the next limit is what counts.
 */
static uint64_t limit_bytes(const struct manager *manager)
{
	const struct budget *budget = &manager->budget;
	uint64_t bytes = cnre_counter_get(&manager->counters->budget_bytes), next_bytes = UINT64_MAX;

	if (bytes != budget->bytes || bytes < manager->slab_bytes_total)
		return bytes;
	for (uint32_t i = 0; i < budget->term_count; i++)
		if (i != budget->binding && budget->term[i].bytes < next_bytes)
			next_bytes = budget->term[i].bytes;
	return next_bytes != UINT64_MAX && next_bytes > bytes ? next_bytes : bytes;
}

/* While an episode lasts the residents are held to the least that any measurement asked for: never refilled. */
static void judge(struct manager *manager, uint64_t planned_bytes)
{
	struct measure *measure = &manager->measure;
	uint64_t budget_bytes = limit_bytes(manager);
	/* More than the budget is planned while a shrink waits for leases; that has been dealt with. */
	uint64_t allowed_bytes = planned_bytes > budget_bytes ? planned_bytes : budget_bytes;
	uint64_t fit_bytes;

	if (measure->pool_bytes <= allowed_bytes) {
		if (measure->overshooting && measure->pool_bytes <= planned_bytes)
			end_episode(manager);
		return;
	}
	fit_bytes = bytes_that_fit(budget_bytes, planned_bytes, measure->pool_bytes, allowed_bytes);
	if (measure->overshooting && fit_bytes >= measure->held_to_bytes)
		return;
	measure->held_to_bytes = fit_bytes;
	if (!measure->overshooting)
		begin_episode(manager, planned_bytes, budget_bytes);
	residency_hold_to(manager, RESIDENCY_HOLD_MEASURE, fit_bytes);
}

/* ---- when ---- */

static uint64_t ask_pool(struct manager *manager)
{
	struct pool_status status;

	pool_get_status(manager->pool, &status);
	manager->measure.pool_bytes = measure_pool(manager, &status);
	cnre_counter_set(&manager->counters->measured_bytes, manager->measure.pool_bytes);
	/* Planned and measured are shown of the same moment. */
	cnre_counter_set(&manager->counters->pool_bytes, status.backed_bytes);
	cnre_counter_set(&manager->page->pool_bytes, status.backed_bytes);
	return status.backed_bytes;
}

static void measure_now(struct manager *manager, int64_t now_ns)
{
	struct measure *measure = &manager->measure;
	uint64_t anonymous_bytes, held_to_bytes = measure->held_to_bytes;

	measure->last_ns = now_ns;
	measure->loads_seen = cnre_counter_get(&manager->counters->loads);
	judge(manager, ask_pool(manager));
	if (measure->held_to_bytes != held_to_bytes)
		(void)ask_pool(manager); /* the pool became smaller or larger: show what it is now */
	cnre_counter_set(&manager->counters->own_bytes, measure_own(manager));
	if (measure_anonymous(&anonymous_bytes) == 0)
		cnre_counter_set(&manager->counters->anonymous_bytes, anonymous_bytes);
}

void measure_open(struct manager *manager)
{
	const char *text = getenv(MEASURE_TEST_VARIABLE);
	unsigned long percent = text == NULL ? 0 : strtoul(text, NULL, 10);

	manager->measure = (struct measure){.held_to_bytes = UINT64_MAX};
	manager->measure.test_percent =
		(uint32_t)(percent > MEASURE_TEST_PERCENT_MAX ? MEASURE_TEST_PERCENT_MAX : percent);
	measure_now(manager, cnre_clock_now_ns());
}

void measure_budget_changed(struct manager *manager)
{
	manager->measure.overshooting = 0;
	manager->measure.held_to_bytes = UINT64_MAX;
	measure_now(manager, cnre_clock_now_ns());
}

static int has_loaded(const struct manager *manager)
{
	return cnre_counter_get(&manager->counters->loads) != manager->measure.loads_seen;
}

void measure_tick(struct manager *manager, int64_t now_ns)
{
	if (has_loaded(manager) && now_ns - manager->measure.last_ns >= MEASURE_INTERVAL_NS)
		measure_now(manager, now_ns);
}

int64_t measure_deadline_ns(const struct manager *manager)
{
	return has_loaded(manager) ? manager->measure.last_ns + MEASURE_INTERVAL_NS : CNRE_NEVER;
}
