/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that do not come back: when a load is given up for another replica, when it fails. Drives are the test's. */
#include "manager/residency_inner.h"

#include "manager/fence.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(manager_load_late, .timeout = 20);

enum { OBJECT = 1, OBJECTS = 4, A = 0, B = 1 };

#define SECOND_NS 1000000000ll
#define BEGUN_NS (1000 * SECOND_NS)
#define PATIENCE_NS (2 * SECOND_NS)
#define TIMEOUT_NS (30 * SECOND_NS)

static struct manager manager;
static struct model_catalog catalog;
static struct model_object object[OBJECTS];
static struct model_layer layer = {.expert_count = OBJECTS};
static struct model_shape shape = {.slab_bytes = 4096};
static struct residency residency;
static struct load load;
static uint32_t degraded, stalled;
static int leased, remembered, given;

static struct cnre_entry *entry(void);

/* ---- what load_late.c asks of others ---- */

int drive_has_replicas(const struct manager *of)
{
	(void)of;
	return 1;
}

/* Either drive has the whole object. */
int drive_split(const struct manager *of, const struct served_model *model, uint32_t number, const struct model_plan *plan,
		const struct drive_bans *bans, struct replica_split *ret_split)
{
	uint32_t good = ~(bans->drives | degraded | stalled) & 3;

	(void)of;
	(void)model;
	(void)number;
	(void)plan;
	if ((~stalled & 3) == 0)
		return -EAGAIN;
	if (good != 0)
		ret_split->rank = REPLICA_GOOD;
	else
		ret_split->rank = (~(bans->drives | stalled) & 3) != 0 ? REPLICA_DEGRADED : REPLICA_FAILED;
	return 0;
}

void drive_left(struct manager *of, uint32_t drive)
{
	(void)of;
	(void)drive;
}

void drive_stalled(struct manager *of, uint32_t drive, uint32_t file, uint64_t off)
{
	(void)of;
	cr_expect_eq(file, 40 + drive);
	cr_expect_eq(off, 4096);
	stalled |= 1u << drive;
}

const char *loader_file_path(const struct loader *loader, uint32_t file)
{
	(void)loader;
	(void)file;
	return "a file";
}

int fence_remember(struct manager *of, uint64_t place, uint64_t bytes)
{
	(void)of;
	(void)place;
	(void)bytes;
	cr_expect_eq(cnre_word_state(object_word(entry())), CNRE_STATE_LOADING, "R21: before its entry changes");
	remembered++;
	return 0;
}

void fence_forget(struct manager *of, uint64_t place)
{
	(void)of;
	(void)place;
	cr_expect_eq(given, 0, "before the slab is anybody's");
	remembered--;
}

void pool_pass(struct pool *pool, uint64_t place, uint32_t owner)
{
	(void)pool;
	(void)place;
	cr_expect_eq(owner, FENCE_OWNER);
	cr_expect_eq(remembered, 1);
}

void pool_give(struct pool *pool, uint64_t place)
{
	(void)pool;
	(void)place;
	given++;
}

void policy_remove(struct policy *policy, uint32_t owner)
{
	(void)policy;
	(void)owner;
}

void load_note_last(const struct load *of, int64_t ended_ns, int status)
{
	(void)of;
	(void)ended_ns;
	(void)status;
}

void load_free(struct load *of)
{
	(void)of;
}

int session_any_lease(const struct session_table *table, const struct served_model *model, uint32_t index)
{
	(void)table;
	(void)model;
	(void)index;
	return leased;
}

/* ---- a load with a part on each drive ---- */

static struct cnre_entry *entry(void)
{
	return &manager.model[0].directory->entry[OBJECT];
}

static void begin(int64_t timeout_ns)
{
	catalog = (struct model_catalog){
		.layer_count = 1, .layer = &layer, .object_count = OBJECTS, .object = object, .shape = &shape};
	manager.model[0].catalog = &catalog;
	manager.model[0].directory = calloc(1, sizeof(struct cnre_directory) + OBJECTS * sizeof(struct cnre_entry));
	manager.counters = calloc(1, sizeof *manager.counters);
	manager.residency = &residency;
	manager.model_count = 1;
	manager.owner_count = OBJECTS;
	cr_assert_eq(layer_counts_open(&manager), 0);
	manager.read_timeout_ns = timeout_ns;
	residency.prefetched = calloc(OBJECTS, 1);
	residency.demanded_ns = calloc(OBJECTS, sizeof *residency.demanded_ns);
	residency.moved_ns = calloc(OBJECTS, sizeof *residency.moved_ns);
	cr_assert_eq(queue_open(&residency.queue, OBJECTS), 0);
	leased = 1;
	load = (struct load){.manager = &manager, .owner = OBJECT, .begun_ns = BEGUN_NS, .is_reading = 1, .part_count = 2};
	load.bans.only = DRIVE_ANY;
	for (uint32_t drive = A; drive <= B; drive++) {
		struct load_part *part = &load.part[drive];

		part->load = &load;
		part->drive = drive;
		part->is_out = 1;
		part->patience_ns = PATIENCE_NS;
		part->read.run_count = 1;
		part->read.run[0] = (struct loader_run){.file = 40 + drive, .file_off = 4096, .bytes = 4096, .needed_bytes = 4096};
		part->read.submitted_ns = BEGUN_NS;
	}
	object_mark_loading(entry(), 0, 17);
}

static void end(void)
{
	(void)queue_close(residency.queue);
	free(residency.prefetched);
	free(residency.demanded_ns);
	free(residency.moved_ns);
	layer_counts_close(&manager);
	free(manager.model[0].directory);
	free(manager.counters);
}

static void expect_word(uint32_t generation, enum cnre_load_error error, enum cnre_state state)
{
	cr_expect_eq(object_word(entry()), cnre_word_pack(generation, error, state), "%x", object_word(entry()));
}

Test(manager_load_late, what_one_drive_owes_is_asked_of_the_other_and_nobody_fails)
{
	begin(TIMEOUT_NS);
	load.part[A].is_out = 0;
	cr_expect_eq(load_expire(&load, BEGUN_NS + SECOND_NS), BEGUN_NS + PATIENCE_NS);
	expect_word(0, CNRE_LOAD_OK, CNRE_STATE_LOADING);
	(void)load_expire(&load, BEGUN_NS + PATIENCE_NS);
	expect_word(0, CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	cr_expect(load.is_late && load.part[B].is_late && !load.part[A].is_late);
	cr_expect_eq(queue_next_demand(residency.queue, CNRE_SESSIONS_MAX, QUEUE_NONE), OBJECT);
	cr_expect_eq(queue_starter(residency.queue, OBJECT), 17);
	cr_expect_eq(residency.moved_ns[OBJECT], BEGUN_NS);
	end();
}

/* Whoever dies between two of its steps leaves either a LOADING entry or a slab that the successor knows of. */
Test(manager_load_late, the_slab_is_in_quarantine_from_before_the_entry_changes_until_the_last_part_is_over)
{
	begin(TIMEOUT_NS);
	manager.page = calloc(1, sizeof *manager.page);
	residency.used_bytes = 4096;
	(void)load_expire(&load, BEGUN_NS + TIMEOUT_NS);
	cr_expect(remembered == 1 && given == 0);
	cr_expect_eq(residency.used_bytes, 4096);
	load_end_late(&load);
	cr_expect(remembered == 0 && given == 1);
	cr_expect_eq(residency.used_bytes, 0);
	free(manager.page);
	end();
}

/* A controller that resets, a machine that swaps: both are late, and neither can stand in for the other. */
Test(manager_load_late, two_drives_that_are_late_together_have_all_the_time_there_is)
{
	begin(TIMEOUT_NS);
	cr_expect_eq(load_expire(&load, BEGUN_NS + PATIENCE_NS), BEGUN_NS + TIMEOUT_NS);
	expect_word(0, CNRE_LOAD_OK, CNRE_STATE_LOADING);
	cr_expect(!load.is_late && stalled == 0);
	(void)load_expire(&load, BEGUN_NS + TIMEOUT_NS);
	expect_word(1, CNRE_LOAD_ETIMEDOUT, CNRE_STATE_ABSENT);
	cr_expect(load.is_late && stalled == 3);
	end();
}

Test(manager_load_late, without_a_time_out_two_drives_that_are_late_together_never_fail)
{
	begin(0);
	cr_expect_eq(load_expire(&load, BEGUN_NS + 1000 * TIMEOUT_NS), INT64_MAX);
	expect_word(0, CNRE_LOAD_OK, CNRE_STATE_LOADING);
	cr_expect(!load.is_late);
	load.part[A].is_out = 0; /* it has answered after all */
	(void)load_expire(&load, BEGUN_NS + 1000 * TIMEOUT_NS);
	expect_word(0, CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	end();
}

/* One that failed lately is not asked before its time, but before anybody is told of an error. */
Test(manager_load_late, in_the_end_a_degraded_replica_is_better_than_an_error)
{
	begin(TIMEOUT_NS);
	load.part[A].is_out = 0;
	degraded = 1u << A;
	cr_expect_eq(load_expire(&load, BEGUN_NS + PATIENCE_NS), BEGUN_NS + TIMEOUT_NS);
	expect_word(0, CNRE_LOAD_OK, CNRE_STATE_LOADING);
	(void)load_expire(&load, BEGUN_NS + TIMEOUT_NS);
	expect_word(0, CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	cr_expect_eq(queue_demand_count(residency.queue), 1);
	end();
}

/* Drives that hang by turns could pass a demand on for ever. */
Test(manager_load_late, a_demand_that_was_moved_too_long_fails)
{
	begin(TIMEOUT_NS);
	load.part[A].is_out = 0;
	load.begun_ns = BEGUN_NS - 2 * TIMEOUT_NS;
	cr_expect_eq(load_expire(&load, BEGUN_NS + PATIENCE_NS), BEGUN_NS + TIMEOUT_NS);
	(void)load_expire(&load, BEGUN_NS + TIMEOUT_NS);
	expect_word(1, CNRE_LOAD_ETIMEDOUT, CNRE_STATE_ABSENT);
	end();
}

Test(manager_load_late, the_time_of_a_stopped_manager_does_not_count)
{
	begin(TIMEOUT_NS);
	load.part[A].is_out = 0;
	residency.awake_since_ns = BEGUN_NS + 10 * TIMEOUT_NS;
	cr_expect_eq(load_expire(&load, residency.awake_since_ns + SECOND_NS), residency.awake_since_ns + PATIENCE_NS);
	(void)load_expire(&load, residency.awake_since_ns + PATIENCE_NS);
	expect_word(0, CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	end();
}

/* Whoever demanded it some other time has not begun this load. */
Test(manager_load_late, a_moved_prefetch_keeps_its_starter)
{
	begin(TIMEOUT_NS);
	load.part[A].is_out = 0;
	load.is_prefetch = 1;
	residency.prefetches_active = 1;
	cr_assert_eq(queue_push_demand(residency.queue, &(struct queue_client){.number = 5, .reserve_slabs = 1}, OBJECT), 1);
	queue_remove(residency.queue, OBJECT);
	object_mark_loading(entry(), 0, 0);
	(void)load_expire(&load, BEGUN_NS + PATIENCE_NS);
	cr_expect_eq(queue_starter(residency.queue, OBJECT), 0);
	cr_expect_eq(residency.prefetches_active, 0);
	end();
}
