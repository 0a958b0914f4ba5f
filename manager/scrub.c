/* SPDX-License-Identifier: Apache-2.0 */
/* Hashing residents again, one by one; see scrub.h. */
#include "manager/scrub.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "manager/digest.h"
#include "manager/residency.h"
#include "manager/vram.h"
#include "manager/worker.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

struct damaged {
	uint32_t owner, generation; /* once evicted, by whomever, the generation is another */
};

struct scrub {
	struct worker_job job;
	struct manager *manager;
	struct residency_pin pin;
	struct model_plan plan;
	uint32_t owner;      /* of the pin */
	uint32_t next_owner; /* where the round goes on */
	uint64_t digest;
	int is_running;
	int64_t period_ns, due_ns;
	struct damaged damaged[SCRUB_DAMAGED_MAX];
	uint32_t damaged_count;
	struct cnre_log_limit limit;
};

static int is_damaged(const struct scrub *scrub, uint32_t owner)
{
	for (uint32_t i = 0; i < scrub->damaged_count; i++)
		if (scrub->damaged[i].owner == owner)
			return 1;
	return 0;
}

static void evict_damaged(struct scrub *scrub)
{
	for (uint32_t i = scrub->damaged_count; i-- > 0;) {
		const struct damaged *damaged = &scrub->damaged[i];

		if (!residency_is_ready(scrub->manager, damaged->owner, damaged->generation) ||
		    residency_evict(scrub->manager, damaged->owner) == 0)
			scrub->damaged[i] = scrub->damaged[--scrub->damaged_count];
	}
}

/* On a worker thread: the pin keeps the slab where it is, and READY means that nobody writes to it. */
static void hash_slab(struct worker_job *job)
{
	struct scrub *scrub = (struct scrub *)((char *)job - offsetof(struct scrub, job));
	const struct model_catalog *catalog = scrub->pin.catalog;

	scrub->digest = digest_compute(scrub->pin.slab, &catalog->shape[catalog->object[scrub->pin.object].shape],
				       &scrub->plan);
}

static void report_damage(struct scrub *scrub, uint64_t expected)
{
	const struct model_object *object = &scrub->pin.catalog->object[scrub->pin.object];

	cnre_counter_add(&scrub->manager->counters->digest_errors, 1);
	residency_suspect(scrub->manager, scrub->owner);
	vram_suspect(scrub->manager, scrub->owner);
	CNRE_CHECK(scrub->damaged_count < SCRUB_DAMAGED_MAX); /* begin() waits otherwise */
	scrub->damaged[scrub->damaged_count++] = (struct damaged){scrub->owner, scrub->pin.generation};
	evict_damaged(scrub);
	if (!cnre_log_allowed(&scrub->limit, cnre_clock_now_ns()))
		return;
	/* What was compared when it was loaded can only have changed in memory. */
	cnre_log(
		CNRE_LOG_ERROR,
		"scrub: %s layer %u expert %u: %s: digest %016llx, known is %016llx: %s; test the memory of this machine",
		scrub->pin.catalog->name, object->layer, object->expert,
		scrub->manager->verifies_loads ? "memory corruption"
					       : "memory corruption, or a changed checkpoint (--verify is no)",
		(unsigned long long)scrub->digest, (unsigned long long)expected,
		is_damaged(scrub, scrub->owner) ? "a client holds it, it is evicted when released"
						: "evicted, the next request reads it again");
}

static void slab_hashed(struct worker_job *job)
{
	struct scrub *scrub = (struct scrub *)((char *)job - offsetof(struct scrub, job));
	uint64_t expected;

	residency_unpin(scrub->manager, &scrub->pin);
	scrub->is_running = 0;
	scrub->due_ns = cnre_clock_deadline_ns(scrub->period_ns);
	if (digest_find(scrub->manager->digests, scrub->owner, &expected) && expected != scrub->digest)
		report_damage(scrub, expected);
}

/* The next resident object in turn whose digest is known. */
static void begin(struct scrub *scrub)
{
	struct manager *manager = scrub->manager;
	uint64_t expected;

	scrub->due_ns = cnre_clock_deadline_ns(scrub->period_ns);
	for (uint32_t i = 0; i < manager->owner_count; i++) {
		uint32_t owner = scrub->next_owner;
		int r = is_damaged(scrub, owner) || !digest_find(manager->digests, owner, &expected)
				? -ENOENT
				: residency_pin(manager, owner, &scrub->pin);

		if (r == -EAGAIN) {
			scrub->due_ns = cnre_clock_deadline_ns(SCRUB_RETRY_NS);
			return;
		}
		scrub->next_owner = (owner + 1) % manager->owner_count;
		if (r < 0)
			continue;
		scrub->owner = owner;
		scrub->is_running = 1;
		model_plan(scrub->pin.catalog, scrub->pin.object, &scrub->plan);
		worker_submit(manager->worker, &scrub->job);
		return;
	}
}

void scrub_pump(struct manager *manager)
{
	struct scrub *scrub = manager->scrub;

	if (scrub == NULL)
		return;
	evict_damaged(scrub);
	if (!scrub->is_running && scrub->damaged_count < SCRUB_DAMAGED_MAX && cnre_clock_left_ns(scrub->due_ns) == 0)
		begin(scrub);
}

int64_t scrub_deadline_ns(const struct manager *manager)
{
	const struct scrub *scrub = manager->scrub;

	if (scrub == NULL)
		return CNRE_NEVER;
	if (scrub->damaged_count > 0)
		return cnre_clock_deadline_ns(SCRUB_RETRY_NS);
	return scrub->is_running ? CNRE_NEVER : scrub->due_ns; /* a worker that ends wakes the loop */
}

int scrub_open(struct manager *manager, int64_t period_ns)
{
	struct scrub *scrub;

	if (period_ns == 0)
		return 0;
	CNRE_CHECK(manager->digests != NULL);
	scrub = calloc(1, sizeof *scrub);
	if (scrub == NULL)
		return -ENOMEM;
	scrub->manager = manager;
	scrub->job = (struct worker_job){.run = hash_slab, .done = slab_hashed};
	scrub->limit.burst = 20;
	scrub->period_ns = period_ns;
	scrub->due_ns = cnre_clock_deadline_ns(period_ns);
	manager->scrub = scrub;
	return 0;
}

void scrub_close(struct manager *manager)
{
	free(manager->scrub);
	manager->scrub = NULL;
}
