/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VRAM through the library, for ThreadSanitizer: threads of one client lease a few experts and give them back, by a call or on
 * streams that come and go, while the manager's side evicts them, writes over where they lay, brings them elsewhere, and frees
 * arenas. Every word of an expert is its number, so bytes of another one, and reads of what is freed, are seen.
 */
#include "base/check.h"
#include "tests/standin/fake_import.h"
#include "tests/support/attached.h"
#include "tests/support/vram_attached.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4u
#define ROUNDS 3000u  /* of each */
#define EVICTED_MIN 300u /* the rounds go on until the manager's side has done so much */
#define FREED_MIN 20u
#define ROUNDS_MAX 2000000u
#define EXPERTS_USED 6u
#define STREAMS 4u    /* even numbers from 4 on: of device 0 */

static struct vram_attached attached;
static _Atomic uint32_t left, hits, others, wrong, unexpected, evicted, freed;

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 16;
}

static void give_back(struct cnre_expert *view, uint32_t random)
{
	int r = -EAGAIN;

	if (random % 2 == 0)
		r = cnre_release_on_stream(attached.client, view, fake_import_stream(4 + 2 * (random / 2 % STREAMS)));
	if (r == -EAGAIN)
		r = cnre_release(attached.client, view);
	if (r != 0 || view->lease != 0)
		(void)atomic_fetch_add(&unexpected, 1);
}

static void use(uint32_t *state)
{
	struct cnre_expert view;
	int r = cnre_acquire_vram(attached.client, 0, next_random(state) % EXPERTS_USED, 0, -1, &view);

	if (r != 0) {
		(void)atomic_fetch_add(&unexpected, r != -ENOSPC);
		return;
	}
	(void)atomic_fetch_add((view.flags & CNRE_IN_VRAM) != 0 ? &hits : &others, 1);
	if (!attached_is_right(&view))
		(void)atomic_fetch_add(&wrong, 1);
	give_back(&view, next_random(state));
}

static void *run(void *context)
{
	uint32_t state = (uint32_t)(uintptr_t)context;

	for (uint32_t i = 0; i < ROUNDS || (i < ROUNDS_MAX && (atomic_load(&evicted) < EVICTED_MIN || atomic_load(&freed) < FREED_MIN)); i++)
		use(&state);
	(void)atomic_fetch_sub(&left, 1);
	return NULL;
}

/* ---- the manager's side ---- */

static uint32_t lies_in[EXPERTS_USED]; /* arena + 1; 0: nowhere */
static int is_closing[FAKE_VRAM_ARENAS];

static int evict(uint32_t expert)
{
	if (lies_in[expert] == 0)
		return 1;
	if (!fake_vram_evict(attached.fake, expert))
		return 0;
	fake_vram_write(attached.fake, expert, lies_in[expert] - 1, 0xdeadbeef);
	lies_in[expert] = 0;
	(void)atomic_fetch_add(&evicted, 1);
	return 1;
}

static void bring(uint32_t expert, uint32_t arena)
{
	if (!evict(expert) || is_closing[arena])
		return;
	fake_vram_write(attached.fake, expert, arena, expert);
	lies_in[expert] = arena + 1;
	fake_vram_fill(attached.fake, expert, arena);
}

static void close_and_free(uint32_t arena)
{
	is_closing[arena] = 1;
	fake_vram_close_arena(attached.fake, arena);
	for (uint32_t i = 0; i < EXPERTS_USED; i++)
		if (lies_in[i] == arena + 1 && !evict(i))
			return; /* at another turn */
	if (!fake_vram_free_arena(attached.fake, arena))
		return;
	(void)atomic_fetch_add(&freed, 1);
	fake_vram_renew_arena(attached.fake, arena);
	is_closing[arena] = 0;
}

static void disturb(uint32_t *state)
{
	uint32_t random = next_random(state);

	if (random % 16 == 0)
		close_and_free(random / 16 % FAKE_VRAM_ARENAS);
	else
		bring(random % EXPERTS_USED, random / 16 % FAKE_VRAM_ARENAS);
	for (uint32_t i = 0; i < FAKE_VRAM_ARENAS; i++)
		if (is_closing[i])
			close_and_free(i);
	fake_import_set_stream(4 + 2 * (random / 64 % STREAMS), random % 3 == 0 ? FAKE_STREAM_HANGS : random % 3 == 1 ? FAKE_STREAM_PASSES : FAKE_STREAM_FAILS);
}

int main(void)
{
	pthread_t thread[THREADS];
	uint32_t state = 1;

	attached = vram_attached_start(NULL, CNRE_WANT_VRAM | CNRE_VRAM_OR_RAM);
	for (uint32_t i = 0; i < EXPERTS_USED; i++)
		fake_host_fill(attached.host, i);
	atomic_store(&left, THREADS);
	for (uint32_t i = 0; i < THREADS; i++)
		CNRE_CHECK(pthread_create(&thread[i], NULL, run, (void *)(uintptr_t)(i + 1)) == 0);
	while (atomic_load(&left) > 0) {
		disturb(&state);
		(void)sched_yield();
	}
	for (uint32_t i = 0; i < THREADS; i++)
		(void)pthread_join(thread[i], NULL);
	for (uint32_t i = 0; i < STREAMS; i++)
		fake_import_set_stream(4 + 2 * i, FAKE_STREAM_PASSES);
	vram_attached_stop(&attached);
	(void)printf("%u hits, %u in memory, %u evicted, %u arenas freed, %u wrong, %u unexpected, %u arenas left open, %u points\n", hits, others,
		     evicted, freed, wrong, unexpected, fake_import_open_arenas(), fake_import_points());
	return wrong != 0 || unexpected != 0 || hits == 0 || evicted == 0 || freed == 0 || fake_import_open_arenas() != 0 || fake_import_points() != 0;
}
