/* SPDX-License-Identifier: Apache-2.0 */
/* What the clients of a crash world do; see crash.h. It comes through every crash point of the library. */
#include "cnre/cnre.h"
#include "tests/crash/crash.h"
#include "tests/support/truth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_NS 30000000000
#define BATCH 8u

/* NULL, or what failed and how, until the next failure of this process. */
static const char *said(const char *call, int r)
{
	static char text[128];

	if (r >= 0)
		return NULL;
	(void)snprintf(text, sizeof text, "%s: %s", call, strerror(-r));
	return text;
}

const char *crash_attach(const struct crash *crash, struct cnre **ret_client)
{
	struct cnre_options options = {.size = sizeof options,
				       .socket = crash->daemon.socket,
				       .name = "crash",
				       .timeout_ns = TIMEOUT_NS,
				       .reserve_bytes = CRASH_RESERVE_SLABS * CRASH_SLAB_BYTES};

	return said("cnre_attach", cnre_attach(ret_client, crash->daemon.model, &options));
}

static const char *check_and_release(const struct crash *crash, struct cnre *client, struct cnre_expert *expert)
{
	int wrong = truth_compare(crash->truth, expert);

	if (cnre_release(client, expert) != 0)
		return "cnre_release failed";
	return wrong == 0 ? NULL : "leased bytes are wrong";
}

static const char *use_one(const struct crash *crash, struct cnre *client, uint32_t layer, uint32_t number)
{
	struct cnre_expert expert;
	int r = cnre_acquire(client, layer, number, TIMEOUT_NS, &expert);

	if (r < 0)
		return said("cnre_acquire", r);
	return check_and_release(crash, client, &expert);
}

/* A poll of what may be missing: gives up at once, and has started the load. */
static const char *poll_one(const struct crash *crash, struct cnre *client, uint32_t layer, uint32_t number)
{
	struct cnre_expert expert;
	int r = cnre_acquire(client, layer, number, 0, &expert);

	if (r == -ETIMEDOUT)
		return NULL;
	return r == 0 ? check_and_release(crash, client, &expert) : said("a poll", r);
}

/* One repeated, some taken in order, one as it arrives, two left untaken. */
static const char *use_batch(const struct crash *crash, struct cnre *client, uint32_t layer, uint32_t first)
{
	uint32_t experts[BATCH];
	struct cnre_expert expert[BATCH];
	struct cnre_batch *batch;
	const char *failed = NULL;
	uint32_t taken = 0;
	int r = 0;

	for (uint32_t i = 0; i < BATCH; i++)
		experts[i] = (first + (i == 1 ? 0 : i)) % CRASH_EXPERTS;
	if (cnre_batch_begin(client, layer, experts, BATCH, 1, &batch) != 0)
		return "cnre_batch_begin failed";
	for (; taken < BATCH - 3 && r >= 0; taken += r >= 0)
		r = cnre_batch_wait(batch, taken, TIMEOUT_NS, &expert[taken]);
	failed = said("cnre_batch_wait", r);
	if (failed == NULL) {
		r = cnre_batch_next(batch, TIMEOUT_NS, &expert[taken]);
		failed = r == 0 ? "cnre_batch_next has nothing left" : said("cnre_batch_next", r);
		taken += r == 1;
	}
	for (uint32_t i = 0; i < taken; i++) {
		const char *wrong = check_and_release(crash, client, &expert[i]);

		failed = failed != NULL ? failed : wrong;
	}
	return cnre_batch_end(batch) == 0 ? failed : "cnre_batch_end failed";
}

static const char *work_on_layer(const struct crash *crash, struct cnre *client, uint32_t layer, uint32_t seed)
{
	const char *failed = NULL;

	for (uint32_t i = 0; i < CRASH_EXPERTS && failed == NULL; i += 3) {
		uint32_t number = (i + seed) % CRASH_EXPERTS, soon[2] = {(number + 9) % CRASH_EXPERTS, (number + 10) % CRASH_EXPERTS};

		if (cnre_prefetch(client, layer, soon, 2) < 0)
			return "cnre_prefetch failed";
		failed = use_one(crash, client, layer, number);
		if (failed == NULL)
			failed = use_one(crash, client, layer, number); /* resident, unless it was evicted in between */
		if (failed == NULL)
			failed = poll_one(crash, client, layer, (number + 5) % CRASH_EXPERTS);
		if (failed == NULL)
			failed = use_batch(crash, client, layer, number);
	}
	return failed;
}

const char *crash_work(const struct crash *crash, struct cnre *client, uint32_t seed)
{
	const char *failed = NULL;

	for (uint32_t layer = 0; layer < CRASH_LAYERS && failed == NULL; layer++)
		failed = work_on_layer(crash, client, layer, seed);
	cnre_token_end(client, 1);
	return failed;
}
