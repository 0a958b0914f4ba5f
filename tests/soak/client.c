/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client process of the soak. It attaches, its threads do everything an engine does, it detaches, and again. Every
 * byte that it leases is compared with the checkpoint when it comes and, of some, once more before the lease goes back:
 * a slab that was reused under a lease shows then.
 */
#include "base/clock.h"
#include "cnre/cnre.h"
#include "tests/soak/soak.h"
#include "tests/support/truth.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ATTACH_TIMEOUT_NS (60 * SOAK_NS_PER_S)
#define ATTACH_RETRIES_NS (20 * SOAK_NS_PER_S)
#define SESSION_STEPS_MAX 1500u /* of a thread, then all detach */
#define HOLD_NS_MAX 3000000u

struct session {
	const struct soak_client *client;
	struct soak_slot *slot;
	struct cnre *cnre;
	const struct truth *truth;
	uint32_t steps;
};

struct thread {
	struct session *session;
	uint32_t seed;
	int result;
	pthread_t id;
};

static int is_stopping(const struct session *session)
{
	return atomic_load_explicit(&session->client->shared->stop, memory_order_relaxed); /* a hint, looked at again */
}

/* The first problem of a slot keeps its words. Always -1. */
static int complain(struct soak_slot *slot, enum soak_count which, const char *call, uint32_t layer, uint32_t expert,
		    int r)
{
	int none = 0;

	soak_add(slot, which, 1);
	if (atomic_compare_exchange_strong(&slot->problem, &none, 2)) {
		(void)snprintf(slot->text, sizeof slot->text, "%s of layer %u expert %u: %s %d (%s)", call, layer,
			       expert, which == SOAK_WRONG ? "wrong bytes in role" : "returned", r,
			       r < 0 ? strerror(-r) : "-");
		atomic_store(&slot->problem, 1);
	}
	return -1;
}

static void hold(uint32_t *seed)
{
	struct timespec pause = {.tv_nsec = soak_random(seed) % HOLD_NS_MAX};

	(void)nanosleep(&pause, NULL); /* stands for the computing that a lease is held for */
}

static int compare(struct session *session, const struct cnre_expert *expert, const char *when)
{
	int wrong = truth_compare(session->truth, expert);

	if (wrong != 0)
		return complain(session->slot, SOAK_WRONG, when, expert->layer, expert->expert, wrong - 1);
	soak_add(session->slot, SOAK_COMPARED_BYTES, expert->bytes);
	soak_add(session->slot, SOAK_COMPARISONS, 1);
	return 0;
}

static void count_return(struct session *session, int64_t start_ns)
{
	uint64_t wait_ns = (uint64_t)(cnre_clock_now_ns() - start_ns);

	soak_add(session->slot, SOAK_WAIT_NS, wait_ns);
	if (wait_ns > soak_get(session->slot, SOAK_LONGEST_WAIT_NS)) /* a lost update is made up by the next long one */
		atomic_store_explicit(&session->slot->count[SOAK_LONGEST_WAIT_NS], wait_ns, memory_order_relaxed);
	(void)atomic_fetch_add_explicit(&session->slot->calls, 1, memory_order_relaxed);
}

static int give_back(struct session *session, struct cnre_expert *expert)
{
	uint32_t layer = expert->layer, number = expert->expert;
	int r = cnre_release(session->cnre, expert);

	return r < 0 ? complain(session->slot, SOAK_FAILURES, "cnre_release", layer, number, r) : 0;
}

/* What is leased: right when it came, right when it goes. */
static int use(struct session *session, struct cnre_expert *expert, uint32_t *seed)
{
	int r;

	soak_add(session->slot, SOAK_LEASES, 1);
	soak_add(session->slot, SOAK_HITS, (expert->flags & CNRE_WAS_RESIDENT) != 0);
	r = compare(session, expert, "a new lease");
	if (r == 0 && soak_random(seed) % 4 == 0) {
		hold(seed);
		r = compare(session, expert, "a held lease");
	}
	return r;
}

/* ---- steps ---- */

/* Most of the work falls on few experts, as it does in engines, and the few change by layer. */
static uint32_t choose(const struct session *session, uint32_t layer, uint32_t *seed)
{
	uint32_t experts = session->client->model->experts;
	uint32_t limit = soak_random(seed) % 3 == 0 ? experts : experts / 4 + 1;

	return (soak_random(seed) % limit + layer * 7) % experts;
}

static int step_acquire(struct session *session, uint32_t layer, uint32_t *seed, int64_t timeout_ns)
{
	uint32_t number = choose(session, layer, seed);
	struct cnre_expert expert;
	int64_t start_ns = cnre_clock_now_ns();
	int r = cnre_acquire(session->cnre, layer, number, timeout_ns, &expert);

	count_return(session, start_ns);
	soak_add(session->slot, SOAK_ACCESSES, 1);
	if (r == -ETIMEDOUT && timeout_ns == 0) {
		soak_add(session->slot, SOAK_EMPTY_POLLS, 1);
		return 0;
	}
	if (r < 0)
		return complain(session->slot, SOAK_FAILURES, "cnre_acquire", layer, number, r);
	r = use(session, &expert, seed);
	return give_back(session, &expert) < 0 ? -1 : r;
}

static int take_one(struct session *session, struct cnre_batch *batch, uint32_t index, int in_order,
		    struct cnre_expert *ret_expert)
{
	int64_t start_ns = cnre_clock_now_ns();
	int r = in_order ? cnre_batch_wait(batch, index, -1, ret_expert) : cnre_batch_next(batch, -1, ret_expert);

	count_return(session, start_ns);
	if (!in_order && r == 0)
		r = -ENODATA; /* fewer came than were asked for */
	return r < 0 ? r : 0;
}

static int step_batch(struct session *session, uint32_t layer, uint32_t *seed)
{
	uint32_t experts[SOAK_BATCH], count = 1 + soak_random(seed) % SOAK_BATCH, taken = 0;
	uint32_t wanted = soak_random(seed) % 8 == 0 ? soak_random(seed) % (count + 1)
						     : count; /* some are left untaken */
	struct cnre_expert expert[SOAK_BATCH];
	int in_order = soak_random(seed) % 2 == 0, result = 0, r;
	struct cnre_batch *batch;

	for (uint32_t i = 0; i < count; i++)
		experts[i] = choose(session, layer, seed);
	r = cnre_batch_begin(session->cnre, layer, experts, count, 1, &batch);
	if (r < 0)
		return complain(session->slot, SOAK_FAILURES, "cnre_batch_begin", layer, experts[0], r);
	for (; taken < wanted && result == 0; taken++) {
		r = take_one(session, batch, taken, in_order, &expert[taken]);
		if (r < 0) {
			result = complain(session->slot, SOAK_FAILURES,
					  in_order ? "cnre_batch_wait" : "cnre_batch_next", layer, experts[taken], r);
			break;
		}
		result = use(session, &expert[taken], seed);
	}
	for (uint32_t i = 0; i < taken; i++)
		if (give_back(session, &expert[i]) < 0)
			result = -1;
	r = cnre_batch_end(batch);
	if (r < 0)
		return complain(session->slot, SOAK_FAILURES, "cnre_batch_end", layer, experts[0], r);
	/* The reservation holds the batches of all threads, so each was admitted and looked up at once, taken or not. */
	soak_add(session->slot, SOAK_ACCESSES, count);
	soak_add(session->slot, SOAK_BATCHES, 1);
	return result;
}

static int step_prefetch(struct session *session, uint32_t layer, uint32_t *seed)
{
	uint32_t experts[SOAK_BATCH];
	unsigned char tiers[SOAK_BATCH];
	int r;

	for (uint32_t i = 0; i < SOAK_BATCH; i++)
		experts[i] = choose(session, layer, seed);
	r = cnre_prefetch(session->cnre, layer, experts, SOAK_BATCH);
	if (r < 0)
		return complain(session->slot, SOAK_FAILURES, "cnre_prefetch", layer, experts[0], r);
	r = cnre_resident(session->cnre, layer, experts, SOAK_BATCH, tiers);
	if (r < 0)
		return complain(session->slot, SOAK_FAILURES, "cnre_resident", layer, experts[0], r);
	soak_add(session->slot, SOAK_PREFETCHES, 1);
	return 0;
}

static int step(struct session *session, uint32_t *seed)
{
	uint32_t layer = soak_random(seed) % session->client->model->layers;
	uint32_t what = soak_random(seed) % 20;

	if (what < 7)
		return step_acquire(session, layer, seed, -1);
	if (what < 9)
		return step_acquire(session, layer, seed, 0);
	if (what < 17)
		return step_batch(session, layer, seed);
	if (what < 19)
		return step_prefetch(session, layer, seed);
	cnre_token_end(session->cnre, 1);
	return 0;
}

/* ---- sessions ---- */

static void *run_thread(void *argument)
{
	struct thread *thread = argument;

	for (uint32_t i = 0; i < thread->session->steps && thread->result == 0 && !is_stopping(thread->session); i++)
		thread->result = step(thread->session, &thread->seed);
	return NULL;
}

static int attach(struct session *session)
{
	const struct soak_client *client = session->client;
	char name[32];
	struct cnre_options options = {
		.size = sizeof options,
		.socket = client->socket,
		.name = name,
		.timeout_ns = ATTACH_TIMEOUT_NS,
		.reserve_bytes = client->options->threads * SOAK_BATCH * client->model->slab_bytes,
	};
	int64_t end_ns = cnre_clock_now_ns() + ATTACH_RETRIES_NS;
	struct timespec pause = {.tv_nsec = 5000000};
	int r;

	(void)snprintf(name, sizeof name, "soak-%u", client->slot);
	while ((r = cnre_attach(&session->cnre, client->directory, &options)) == -ENOSPC &&
	       client->options->kill_clients > 0 && cnre_clock_now_ns() < end_ns) {
		/* The reservation of a client that was killed a moment ago may still stand. */
		soak_add(session->slot, SOAK_ATTACH_RETRIES, 1);
		(void)nanosleep(&pause, NULL);
	}
	if (r < 0)
		return complain(session->slot, SOAK_FAILURES, "cnre_attach", 0, 0, r);
	(void)atomic_fetch_add_explicit(&session->slot->calls, 1, memory_order_relaxed);
	return 0;
}

/* Without leases the accounts of the library itself must say so, before it goes. */
static int check_held(struct session *session)
{
	struct cnre_stats stats = {.size = sizeof stats};
	int r = cnre_stats(session->cnre, &stats);

	if (r < 0 || stats.leased_bytes != 0)
		return complain(session->slot, SOAK_FAILURES, "cnre_stats after all releases", 0, 0,
				r < 0 ? r : -EBUSY);
	return 0;
}

static int run_session(struct session *session, uint32_t *seed)
{
	struct thread thread[SOAK_THREADS_MAX];
	uint32_t started = 0;
	int result = 0;

	if (attach(session) < 0)
		return -1;
	session->steps = 1 + soak_random(seed) % SESSION_STEPS_MAX;
	for (; started < session->client->options->threads; started++) {
		thread[started] = (struct thread){.session = session, .seed = soak_random(seed)};
		if (pthread_create(&thread[started].id, NULL, run_thread, &thread[started]) != 0)
			break;
	}
	for (uint32_t i = 0; i < started; i++) {
		(void)pthread_join(thread[i].id, NULL);
		result |= thread[i].result;
	}
	if (result == 0)
		result = check_held(session);
	cnre_detach(session->cnre);
	soak_add(session->slot, SOAK_SESSIONS, 1);
	return result;
}

int soak_client_run(const struct soak_client *client)
{
	struct session session = {.client = client, .slot = &client->shared->slot[client->slot]};
	struct truth *truth;
	uint32_t seed = client->seed;
	int result = truth_open(&truth, client->directory);

	if (result < 0) {
		(void)complain(session.slot, SOAK_FAILURES, "reading the checkpoint", 0, 0, result);
		return 1;
	}
	session.truth = truth;
	while (result == 0 && !is_stopping(&session))
		result = run_session(&session, &seed);
	truth_close(truth);
	return result == 0 ? 0 : 1;
}
