/* SPDX-License-Identifier: Apache-2.0 */
/* Which demand begins next, and what becomes of those that cannot begin. Drives, loads and leases are the test's. */
#include "manager/residency_inner.h"

#include "base/clock.h"
#include "manager/reservation.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(manager_pump, .timeout = 20);

enum { OBJECTS = 64, DRIVES = 3, PLACES = 8, TIMEOUT_NS = 1000000000 };

static struct manager manager;
static struct model_catalog catalog;
static struct model_object object[OBJECTS];
static struct model_layer layer = {.expert_count = OBJECTS};
static struct model_shape shape = {.slab_bytes = 4096};
static struct residency residency;
static struct load load[PLACES];
static struct queue_client client[4] = {
	{.slot = 0, .number = 1, .reserve_slabs = OBJECTS}, {.slot = 1, .number = 2, .reserve_slabs = OBJECTS},
	{.slot = 2, .number = 3, .reserve_slabs = OBJECTS}, {.slot = 3, .number = 4, .reserve_slabs = OBJECTS}};

static uint32_t drive_of[OBJECTS], in_flight[DRIVES], room, hanging;
static uint32_t begun[OBJECTS], begun_by[OBJECTS], begun_count;
static int leased[OBJECTS];

/* ---- what pump.c asks of others ---- */

void model_plan(const struct model_catalog *of, uint32_t number, struct model_plan *ret_plan)
{
	(void)of;
	ret_plan->run_count = number; /* for drive_split */
}

uint32_t loader_drives(const struct loader *loader)
{
	(void)loader;
	return DRIVES;
}

int drive_has_replicas(const struct manager *of)
{
	(void)of;
	return 0;
}

int drive_split(const struct manager *of, const struct served_model *model, uint32_t number, const struct model_plan *plan,
		const struct drive_bans *bans, struct replica_split *ret_split)
{
	(void)of;
	(void)model;
	(void)plan;
	(void)bans;
	if ((hanging >> drive_of[number] & 1) != 0)
		return -EAGAIN;
	ret_split->part_count = 1;
	ret_split->part[0].drive = drive_of[number];
	return 0;
}

int load_has_room(const struct manager *of, const struct replica_split *split)
{
	(void)of;
	return in_flight[split->part[0].drive] < room;
}

int load_begin(struct manager *of, uint32_t owner, uint32_t starter, enum load_kind kind)
{
	struct load *taken = residency.free_load;

	(void)kind;
	residency.free_load = taken->next_free;
	taken->owner = owner;
	residency.loads_active++;
	residency.loads_of_drive[drive_of[owner]]++;
	in_flight[drive_of[owner]]++;
	object_mark_loading(&of->model[0].directory->entry[owner], 0, starter);
	begun_by[begun_count] = starter;
	begun[begun_count++] = owner;
	return 0;
}

int64_t load_expire(struct load *of, int64_t now_ns)
{
	(void)of;
	return now_ns + TIMEOUT_NS;
}

void load_retry_waiting(struct manager *of)
{
	(void)of;
}

int evict_pays(struct manager *of, uint32_t owner)
{
	(void)of;
	(void)owner;
	return 1;
}

int evict_find_room(struct manager *of, uint32_t owner)
{
	(void)of;
	(void)owner;
	return 0;
}

int evict_down_to(struct manager *of, uint64_t bytes, uint32_t owner)
{
	(void)of;
	(void)bytes;
	(void)owner;
	return 0;
}

uint64_t evict_target_bytes(const struct manager *of)
{
	(void)of;
	return UINT64_MAX;
}

int pool_trim(struct pool *pool)
{
	(void)pool;
	return 0;
}

void reservation_apply(struct manager *of)
{
	(void)of;
}

void reservation_enforce(struct manager *of)
{
	(void)of;
}

int session_any_lease(const struct session_table *table, const struct served_model *model, uint32_t index)
{
	(void)table;
	(void)model;
	return leased[index];
}

/* ---- a manager ---- */

static void begin(uint32_t places, uint32_t reads_of_drive)
{
	room = reads_of_drive;
	catalog = (struct model_catalog){
		.layer_count = 1, .layer = &layer, .object_count = OBJECTS, .object = object, .shape = &shape};
	memset(&manager, 0, sizeof manager);
	manager.model[0].catalog = &catalog;
	manager.model[0].directory = calloc(1, sizeof(struct cnre_directory) + OBJECTS * sizeof(struct cnre_entry));
	manager.counters = calloc(1, sizeof *manager.counters);
	manager.residency = &residency;
	manager.model_count = 1;
	manager.owner_count = OBJECTS;
	cr_assert_eq(layer_counts_open(&manager), 0);
	manager.loads_max = manager.loads_most = places;
	manager.read_timeout_ns = TIMEOUT_NS;
	residency.load = load;
	residency.load_count = places;
	residency.demanded_ns = calloc(OBJECTS, sizeof *residency.demanded_ns);
	residency.moved_ns = calloc(OBJECTS, sizeof *residency.moved_ns);
	residency.expire_ns = cnre_clock_now_ns();
	for (uint32_t i = 0; i < places; i++) {
		load[i].next_free = residency.free_load;
		residency.free_load = &load[i];
	}
	cr_assert_eq(queue_open(&residency.queue, OBJECTS), 0);
}

static void end(void)
{
	(void)queue_close(residency.queue);
	free(residency.demanded_ns);
	free(residency.moved_ns);
	layer_counts_close(&manager);
	free(manager.model[0].directory);
	free(manager.counters);
}

static void demand(uint32_t who, uint32_t owner, uint32_t drive)
{
	drive_of[owner] = drive;
	leased[owner] = 1;
	residency.demanded_ns[owner] = cnre_clock_now_ns();
	cr_assert_eq(queue_push_demand(residency.queue, &client[who], owner), 1);
}

/* What has been out longest on each drive that answers arrives. */
static void complete(void)
{
	static int is_over[OBJECTS];

	for (uint32_t drive = 0; drive < DRIVES; drive++)
		for (uint32_t i = 0; i < begun_count; i++) {
			if (is_over[begun[i]] || drive_of[begun[i]] != drive || (hanging >> drive & 1) != 0)
				continue;
			is_over[begun[i]] = 1;
			residency.loads_active--;
			residency.loads_of_drive[drive]--;
			in_flight[drive]--;
			for (uint32_t k = 0; k < residency.load_count; k++)
				if (load[k].owner == begun[i]) {
					load[k].owner = UINT32_MAX;
					load[k].next_free = residency.free_load;
					residency.free_load = &load[k];
				}
			break;
		}
}

static uint32_t turns_until(uint32_t owner)
{
	for (uint32_t turn = 1; turn <= OBJECTS; turn++) {
		residency_pump(&manager);
		for (uint32_t i = 0; i < begun_count; i++)
			if (begun[i] == owner)
				return turn;
		complete();
	}
	return UINT32_MAX;
}

/* R34. Places are for all drives together, so they need not be what is short. */
Test(manager_pump, clients_take_turns_on_a_drive_though_places_are_free)
{
	begin(PLACES, 1);
	for (uint32_t i = 0; i < 20; i++)
		demand(0, i, 0);
	demand(1, 20, 0);
	cr_expect_leq(turns_until(20), 2, "begun after %u turns", turns_until(20));
	end();
}

/* Who waits for a drive that stands still has no better turn on others, nor does it keep one for its neighbour. */
Test(manager_pump, clients_take_turns_on_one_drive_while_others_wait_for_another)
{
	uint32_t of_client[5] = {0};

	begin(PLACES, 1);
	for (uint32_t i = 0; i < 10; i++) {
		demand(0, i, 1);
		demand(1, 10 + i, 0);
		demand(2, 20 + i, 0);
		demand(3, 30 + i, 0);
	}
	residency_pump(&manager); /* a read that stands still, and is not known to yet */
	for (int turn = 0; turn < 12; turn++) {
		room = 1;
		in_flight[1] = 1;
		residency_pump(&manager);
		hanging = 1u << 1; /* only for complete */
		complete();
		hanging = 0;
	}
	for (uint32_t i = 0; i < begun_count; i++)
		of_client[begun_by[i]]++;
	for (uint32_t number = 2; number <= 4; number++)
		cr_expect_geq(of_client[number], 4, "client %u: %u", number, of_client[number]);
	end();
}

/* R16: a pool of one place, which a read has that nobody waits for any more. Its own drive is another one. */
Test(manager_pump, a_demand_fails_in_time_where_late_reads_have_all_places)
{
	struct cnre_entry *entry;

	begin(1, 4);
	demand(0, 3, 0);
	residency_pump(&manager);
	cr_assert_eq(begun_count, 1);
	load[0].is_reading = load[0].is_late = 1;
	residency.stalls.reads = residency.stalls.drive[0].reads = 1;
	demand(1, 5, 1);
	residency.expire_ns = cnre_clock_now_ns();
	residency_pump(&manager);
	cr_expect_eq(queue_demand_count(residency.queue), 1, "not before its time");
	residency.demanded_ns[5] -= 2 * TIMEOUT_NS;
	residency.awake_since_ns = 0;
	residency.expire_ns = cnre_clock_now_ns();
	residency_pump(&manager);
	cr_expect_eq(queue_demand_count(residency.queue), 0);
	entry = &manager.model[0].directory->entry[5];
	cr_expect_eq(object_word(entry), cnre_word_pack(1, CNRE_LOAD_ETIMEDOUT, CNRE_STATE_ABSENT));
	end();
}

/* Else the next load of it would seem to have begun then, and to have failed over. */
Test(manager_pump, a_given_up_demand_leaves_no_time_of_an_earlier_attempt)
{
	begin(PLACES, 1);
	demand(0, 7, 0);
	residency.moved_ns[7] = 12345;
	leased[7] = 0;
	residency_pump(&manager);
	cr_expect_eq(begun_count, 0);
	cr_expect_eq(residency.moved_ns[7], 0);
	end();
}
