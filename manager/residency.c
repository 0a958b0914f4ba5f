/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of residency and told to it, its budget, and its life; see residency.h and residency_inner.h. */
#include "manager/residency_inner.h"

#include "base/clock.h"
#include "manager/feed.h"
#include "manager/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- requests ---- */

/* Takes the queued demands of a client out that nobody holds a lease for any more (R7); how many. */
static uint32_t drop_unleased(struct manager *manager, uint32_t slot)
{
	struct queue *queue = manager->residency->queue;
	uint32_t owner = queue_next_demand(queue, slot, QUEUE_NONE), dropped = 0;

	while (owner != QUEUE_NONE) {
		uint32_t next = queue_next_demand(queue, slot, owner);

		if (!is_leased(manager, owner)) {
			queue_remove(queue, owner);
			manager->residency->moved_ns[owner] = 0;
			dropped++;
		}
		owner = next;
	}
	cnre_counter_add(&manager->counters->loads_dropped, dropped);
	return dropped;
}

int residency_request(struct manager *manager, struct session *session, uint32_t owner, enum residency_kind kind)
{
	const struct queue_client client = {
		.slot = session->slot, .number = session->number, .reserve_slabs = session->reserve_slabs};
	struct residency *residency = manager->residency;
	struct cnre_entry *entry = entry_of(manager, owner);
	int accepted = 1;

	if (cnre_word_state(object_word(entry)) != CNRE_STATE_ABSENT)
		return 1; /* resident, or on its way: the asker sleeps on the word and joins */
	if (kind == RESIDENCY_DEMAND) {
		if (!queue_is_demand(residency->queue, owner)) {
			residency->demanded_ns[owner] = cnre_clock_now_ns();
			residency->moved_ns[owner] = 0;
		}
		accepted = queue_push_demand(residency->queue, &client, owner);
		/* What the client gave up waiting for may still fill its list, while a drive hangs: an honest demand has room. */
		if (!accepted && drop_unleased(manager, session->slot) > 0)
			accepted = queue_push_demand(residency->queue, &client, owner);
		if (!accepted)
			probe_reject(manager, owner, PROBE_QUEUE_FULL);
	} else if (queue_prefetch_count(residency->queue) >= RESIDENCY_PREFETCH_QUEUE_MAX ||
		   !queue_push_prefetch(residency->queue, session->slot, owner)) {
		cnre_counter_add(&manager->counters->prefetches_dropped, 1);
		probe_reject(manager, owner, PROBE_QUEUE_FULL);
	}
	cnre_counter_set(&manager->counters->loads_queued, queue_count(residency->queue));
	return accepted;
}

void residency_visit(struct manager *manager, struct session *session, uint32_t layer, uint32_t token_count)
{
	struct served_model *model = session->model;
	uint32_t dropped;

	policy_visit(manager->residency->policy, model->first_layer + layer, token_count);
	/* A prefetch that is still queued when its layer begins comes too late. */
	dropped = queue_drop_prefetches(manager->residency->queue, session->slot,
					model->first_owner + model->catalog->layer[layer].first_object,
					model->catalog->layer[layer].expert_count);
	cnre_counter_add(&manager->counters->prefetches_dropped, dropped);
}

/* A guess is judged by the first lookup after it: as the client saw the expert, whose load may have ended since. */
void residency_access(struct manager *manager, uint32_t owner, int hit)
{
	policy_access(manager->residency->policy, owner);
	object_judge_prefetch(manager, owner, hit ? PREFETCH_USED : PREFETCH_LATE);
}

void residency_forget_session(struct manager *manager, uint32_t slot)
{
	queue_forget_slot(manager->residency->queue, slot);
}

const struct stalls *residency_stalls(const struct manager *manager)
{
	return &manager->residency->stalls;
}

/* ---- budget ---- */

static void end_holds(struct residency *residency)
{
	for (int who = 0; who < RESIDENCY_HOLDS; who++)
		residency->held_to_bytes[who] = UINT64_MAX;
}

int residency_set_budget(struct manager *manager, uint64_t budget_bytes)
{
	struct residency *residency = manager->residency;
	int r = pool_check_budget(manager->pool, budget_bytes);

	if (r < 0)
		return r;
	(void)evict_down_to(manager, budget_bytes,
			    POLICY_NONE); /* by policy; what is leased follows in residency_pump */
	r = pool_set_budget(manager->pool, budget_bytes);
	if (r < 0)
		return r;
	residency->budget_bytes = budget_bytes;
	policy_set_budget(residency->policy, budget_bytes);
	end_holds(residency);
	residency->trimming = r > 0 || residency->used_bytes > budget_bytes;
	cnre_counter_set(&manager->counters->budget_bytes, budget_bytes);
	cnre_counter_set(&manager->page->budget_bytes, budget_bytes);
	manager->state->budget_bytes = budget_bytes;
	return residency->trimming;
}

void residency_hold_to(struct manager *manager, enum residency_hold who, uint64_t bytes)
{
	struct residency *residency = manager->residency;
	uint64_t target;
	int r;

	residency->held_to_bytes[who] = bytes;
	target = evict_target_bytes(manager);
	(void)evict_down_to(manager, target, POLICY_NONE);
	/* Refused where whole segments cannot go without breaking the guarantee: then their memory stays, and lends less. */
	r = pool_set_budget(manager->pool, target);
	if (r >= 0)
		residency->trimming = r;
	residency->trimming |= residency->used_bytes > target;
}

void residency_evict_all(struct manager *manager, uint32_t *ret_evicted, uint32_t *ret_kept)
{
	*ret_evicted = *ret_kept = 0;
	for (uint32_t owner = 0; owner < manager->owner_count; owner++) {
		enum cnre_state state = cnre_word_state(object_word(entry_of(manager, owner)));

		if (state == CNRE_STATE_ABSENT)
			continue;
		if (residency_evict(manager, owner) == 0)
			(*ret_evicted)++;
		else
			(*ret_kept)++;
	}
}

/* ---- the scrub, and uploads ---- */

void residency_suspect(struct manager *manager, uint32_t owner)
{
	manager->residency->suspect[owner] = 1;
}

int residency_is_suspect(const struct manager *manager, uint32_t owner)
{
	return manager->residency->suspect[owner];
}

int residency_pin(struct manager *manager, uint32_t owner, struct residency_pin *ret_pin)
{
	struct residency *residency = manager->residency;
	const struct served_model *model = model_of(manager, owner);
	const struct cnre_entry *entry = entry_of(manager, owner);
	struct load *load = residency->free_load;
	uint32_t number = 0;

	if (cnre_word_state(object_word(entry)) != CNRE_STATE_READY)
		return -ENOENT;
	while (number < RESIDENCY_PINS_MAX && residency->pin[number] != NULL)
		number++;
	if (number == RESIDENCY_PINS_MAX || !pump_may_load(manager))
		return -EAGAIN;
	residency->free_load = load->next_free;
	residency->pin[number] = load;
	residency->pin_count++;
	load->owner = owner;
	*ret_pin = (struct residency_pin){
		.catalog = model->catalog,
		.object = owner - model->first_owner,
		.generation = cnre_word_generation(object_word(entry)),
		.slab = pool_address(manager->pool, object_place(entry)),
		.number = number,
	};
	return 0;
}

void residency_unpin(struct manager *manager, const struct residency_pin *pin)
{
	struct residency *residency = manager->residency;
	struct load *load = residency->pin[pin->number];

	CNRE_CHECK(load != NULL);
	load->next_free = residency->free_load;
	residency->free_load = load;
	residency->pin[pin->number] = NULL;
	residency->pin_count--;
}

uint32_t residency_loads_free(const struct manager *manager)
{
	uint32_t used = manager->residency->loads_active + manager->residency->pin_count;

	return used < manager->loads_max ? manager->loads_max - used : 0;
}

int residency_is_ready(struct manager *manager, uint32_t owner, uint32_t generation)
{
	uint32_t word = object_word(entry_of(manager, owner));

	return cnre_word_state(word) == CNRE_STATE_READY && cnre_word_generation(word) == generation;
}

uint32_t residency_objects(const struct manager *manager, const struct served_model *model)
{
	return manager->residency->resident_of_model[model->number];
}

uint64_t residency_bytes(const struct manager *manager, const struct served_model *model)
{
	return manager->residency->bytes_of_model[model->number];
}

uint32_t residency_queued(const struct manager *manager)
{
	return queue_count(manager->residency->queue);
}

uint64_t residency_budget_bytes(const struct manager *manager)
{
	return manager->residency->budget_bytes;
}

int residency_last_load(const struct manager *manager, uint32_t owner, struct residency_load *ret_load)
{
	const struct last_load *last = &manager->residency->last_load[owner];

	if (last->ended_ns == 0)
		return -ENOENT;
	*ret_load = (struct residency_load){
		.ended_ns = last->ended_ns, .drive = last->drive, .attempts = last->attempts, .status = last->status};
	return 0;
}

int residency_is_queued(const struct manager *manager, uint32_t owner)
{
	return queue_is_demand(manager->residency->queue, owner);
}

struct policy *residency_policy(const struct manager *manager)
{
	return manager->residency->policy;
}

const char *residency_policy_name(const struct manager *manager)
{
	return policy_name(manager->residency->policy);
}

/* ---- life ---- */

/* Objects and layers of all models in one numbering. */
static void number_objects(struct manager *manager, struct policy_setup *setup, uint32_t *layer_of, uint64_t *bytes_of)
{
	for (uint32_t i = 0; i < manager->model_count; i++) {
		const struct served_model *model = &manager->model[i];

		setup->layer_count = model->first_layer + model->catalog->layer_count;
		if (setup->floor_slots < model->catalog->top_k)
			setup->floor_slots = model->catalog->top_k;
		for (uint32_t object = 0; object < model->catalog->object_count; object++) {
			layer_of[model->first_owner + object] = model->first_layer + model->catalog->object[object].layer;
			bytes_of[model->first_owner + object] = slab_bytes_of(manager, model->first_owner + object);
		}
	}
}

static int create_policy(struct manager *manager, const char *name, struct policy **ret_policy)
{
	uint32_t *layer_of = calloc(manager->owner_count, sizeof *layer_of);
	uint64_t *bytes_of = calloc(manager->owner_count, sizeof *bytes_of);
	struct policy_setup setup = {
		.object_count = manager->owner_count,
		.layer_of = layer_of,
		.bytes_of = bytes_of,
		.budget_bytes = manager->residency->budget_bytes,
		.pool = (enum policy_pool)manager->residency->pool,
		.prior_of = feed_uses(manager),
	};
	int r = -ENOMEM;

	if (layer_of != NULL && bytes_of != NULL) {
		number_objects(manager, &setup, layer_of, bytes_of);
		r = policy_create(ret_policy, name, &setup);
	}
	free(layer_of);
	free(bytes_of);
	return r;
}

static int has_policy(const char *name)
{
	for (unsigned i = 0; policy_name_at(i) != NULL; i++)
		if (strcmp(policy_name_at(i), name) == 0)
			return 1;
	return 0;
}

/* A wish that cannot be met is refused before any table is made: a client may ask without end. */
int residency_set_policy(struct manager *manager, const char *name)
{
	struct residency *residency = manager->residency;
	struct policy *next;
	uint32_t owner;
	int r = !has_policy(name) ? -ENOENT : policy_takes_pool(name, (enum policy_pool)residency->pool) ? 0 : -EINVAL;

	if (r == 0)
		r = create_policy(manager, name, &next);
	if (r < 0)
		return r;
	policy_seek(residency->policy, POLICY_NONE);
	while ((owner = policy_next(residency->policy)) != POLICY_NONE)
		policy_add(next, owner);
	policy_destroy(residency->policy);
	residency->policy = next;
	feed_policy_changed(manager);
	return 0;
}

int residency_open(struct manager *manager, const struct residency_setup *setup)
{
	struct residency *residency = calloc(1, sizeof *residency);
	int r = -ENOMEM;

	if (residency == NULL)
		return r;
	manager->residency = residency;
	residency->budget_bytes = setup->budget_bytes;
	residency->pool = setup->pool;
	end_holds(residency);
	residency->error_limit.burst = 20;
	residency->prefetched = calloc(manager->owner_count, 1);
	residency->resident_of_model = calloc(manager->model_count, sizeof *residency->resident_of_model);
	residency->bytes_of_model = calloc(manager->model_count, sizeof *residency->bytes_of_model);
	residency->demanded_ns = calloc(manager->owner_count, sizeof *residency->demanded_ns);
	residency->moved_ns = calloc(manager->owner_count, sizeof *residency->moved_ns);
	residency->suspect = calloc(manager->owner_count, 1);
	residency->last_load = calloc(manager->owner_count, sizeof *residency->last_load);
	if (residency->prefetched == NULL || residency->resident_of_model == NULL || residency->bytes_of_model == NULL ||
	    residency->demanded_ns == NULL || residency->moved_ns == NULL || residency->suspect == NULL || residency->last_load == NULL)
		goto fail;
	r = queue_open(&residency->queue, manager->owner_count);
	if (r < 0)
		goto fail;
	r = load_open_all(manager, setup->loads_max);
	if (r < 0)
		goto fail;
	r = create_policy(manager, setup->policy, &residency->policy);
	if (r < 0)
		goto fail;
	cnre_counter_set(&manager->counters->budget_bytes, setup->budget_bytes);
	cnre_counter_set(&manager->page->budget_bytes, setup->budget_bytes);
	manager->state->budget_bytes = setup->budget_bytes;
	/* Levels that a former incarnation may have left; adoption counts them up again. */
	cnre_counter_set(&manager->counters->resident_bytes, 0);
	cnre_counter_set(&manager->counters->resident_objects, 0);
	cnre_counter_set(&manager->counters->loads_in_flight, 0);
	/* Which they were is known to nobody any more. */
	cnre_counter_add(&manager->counters->prefetches_failed, cnre_counter_get(&manager->counters->prefetches_unused));
	cnre_counter_set(&manager->counters->prefetches_unused, 0);
	return 0;

fail:
	residency_close(manager);
	return r;
}

void residency_close(struct manager *manager)
{
	struct residency *residency = manager->residency;

	if (residency == NULL)
		return;
	policy_destroy(residency->policy);
	queue_close(residency->queue);
	free(residency->load);
	free(residency->resident_of_model);
	free(residency->bytes_of_model);
	free(residency->prefetched);
	free(residency->demanded_ns);
	free(residency->moved_ns);
	free(residency->suspect);
	free(residency->last_load);
	free(residency);
	manager->residency = NULL;
}
