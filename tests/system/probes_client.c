/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that does what tests/system/probes.sh knows, and says on standard output which probes of the library must have
 * fired, in their order and with the arguments that can be known. It ends by waiting to be killed with three leases; with a
 * third argument it does nothing but wait for one expert in VRAM.
 *
 * usage: probes_client SOCKET MODEL [vram]
 */
#include <cnre/cnre.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEASES 8u
#define PREFETCH_TRIES 10000 /* milliseconds */

static struct cnre *client;
static struct cnre_expert lease[LEASES];
static struct cnre_model_info info = {.size = sizeof info};

static void fail(const char *what, int error)
{
	fprintf(stderr, "probes_client: %s: %s\n", what, strerror(-error));
	exit(1);
}

static uint32_t object_of(const struct cnre_expert *expert)
{
	return expert->layer * info.expert_count + expert->expert;
}

static void say_taken(const struct cnre_expert *expert)
{
	printf("lease_taken %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64 "\n", object_of(expert), expert->layer, expert->expert,
	       expert->lease);
}

/* Misses only where the test says so: every expert is new but those that it takes twice. */
static void take(struct cnre_expert *expert, uint32_t layer, uint32_t number, int misses)
{
	int r = cnre_acquire(client, layer, number, -1, expert);

	if (r < 0)
		fail("acquire", r);
	if ((expert->flags & CNRE_WAS_RESIDENT) != 0 && misses)
		fail("a new expert is resident", 0);
	if (misses)
		printf("acquire_miss %" PRIu32 " %" PRIu32 " %" PRIu32 "\n", object_of(expert), layer, number);
	say_taken(expert);
	if (misses)
		printf("acquire_done %" PRIu32 " %" PRIu32 " %" PRIu32 " 0\n", object_of(expert), layer, number);
}

static void give_back(struct cnre_expert *expert)
{
	uint32_t object = object_of(expert);
	uint64_t cookie = expert->lease;
	int r = cnre_release(client, expert);

	if (r < 0)
		fail("release", r);
	printf("lease_released %" PRIu32 " %" PRIu64 "\n", object, cookie);
}

/*
 * Experts of a layer in the caller's order, all of them new. Whether a wait finds its bytes there already is not known, so
 * only joins and leases are said: an expert that is named twice has one miss that begins its load, and one that joins.
 */
static void batch(uint32_t layer, const uint32_t *experts, uint32_t count)
{
	struct cnre_batch *taken;
	int r = cnre_batch_begin(client, layer, experts, count, 1, &taken);

	for (uint32_t i = 0; r == 0 && i < count; i++) {
		r = cnre_batch_wait(taken, i, -1, &lease[i]);
		if (r < 0)
			break;
		if ((lease[i].flags & CNRE_JOINED) != 0)
			printf("acquire_join %" PRIu32 " %" PRIu32 " %" PRIu32 "\n", object_of(&lease[i]), layer, lease[i].expert);
		say_taken(&lease[i]);
	}
	if (r == 0)
		r = cnre_batch_end(taken);
	if (r < 0)
		fail("batch", r);
	for (uint32_t i = 0; i < count; i++)
		give_back(&lease[i]);
}

/* Until it is there: no probe of the library, but the manager's. */
static void prefetch(uint32_t layer, uint32_t expert)
{
	uint8_t tier = CNRE_ABSENT;
	int r = cnre_prefetch(client, layer, &expert, 1);

	for (int tries = 0; r >= 0 && tries < PREFETCH_TRIES; tries++) {
		r = cnre_resident(client, layer, &expert, 1, &tier);
		if (r == 0 && tier == CNRE_RAM)
			return;
		(void)usleep(1000);
	}
	fail("prefetch", r);
}

static void take_in_vram(void)
{
	int r = cnre_acquire_vram(client, 1, 6, 0, 30000000000, &lease[0]);

	if (r < 0 || (lease[0].flags & CNRE_IN_VRAM) == 0)
		fail("acquire in VRAM", r);
	r = cnre_release(client, &lease[0]);
	if (r < 0)
		fail("release", r);
	(void)cnre_detach(client);
	exit(0);
}

int main(int argc, char **argv)
{
	struct cnre_options options = {.size = sizeof options, .timeout_ns = 20000000000, .name = "probes"};
	int r;

	if (argc != 3 && argc != 4)
		return 2;
	options.socket = argv[1];
	options.flags = argc == 4 ? CNRE_WANT_VRAM : 0;
	r = cnre_attach(&client, argv[2], &options);
	if (r == 0)
		r = cnre_model(client, &info);
	if (r < 0)
		fail("attach", r);
	if (argc == 4)
		take_in_vram();
	take(&lease[0], 0, 2, 1);
	take(&lease[1], 0, 2, 0);
	give_back(&lease[1]);
	give_back(&lease[0]);
	batch(1, (const uint32_t[]){9, 9}, 2);
	batch(2, (const uint32_t[]){5, 3, 4}, 3);
	prefetch(3, 11);
	take(&lease[0], 0, 7, 1);
	take(&lease[1], 0, 7, 0);
	take(&lease[2], 0, 2, 0);
	printf("holds 3\n");
	(void)fflush(stdout);
	for (;;)
		(void)pause();
}
