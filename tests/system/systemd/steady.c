/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that stays attached while the manager is killed under it: it holds one lease, looks up experts that were
 * resident at its start without a pause, and compares every byte with what it first saw. Commands on standard input, an
 * answer line each:
 *
 *   fresh   waits for an expert that nobody has asked for: "fresh RESULT MILLISECONDS" (0 or -errno)
 *   report  "calls N failed F changed C slowest MILLISECONDS"
 *
 * usage: steady MODEL SOCKET. Ends with standard input. Only what libcnre offers.
 */
#include "cnre/cnre.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPERTS_MAX 4096u
#define ACQUIRE_NS (20ll * 1000000000ll)
#define PACE_NS 1000000

struct place {
	uint32_t layer, expert;
	uint64_t digest;
};

struct steady {
	struct cnre *client;
	struct cnre_model_info info;
	struct place place[EXPERTS_MAX]; /* resident at the start */
	uint32_t count;
	atomic_ullong calls, failed, changed, slowest_ms;
	atomic_int ending;
};

static int64_t now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

/* FNV-1a over every part. */
static uint64_t digest_of(const struct cnre_expert *expert)
{
	uint64_t digest = 14695981039346656037ull;

	for (int role = 0; role < CNRE_ROLES; role++) {
		const unsigned char *data = expert->part[role].data;

		for (uint64_t i = 0; i < expert->part[role].bytes; i++)
			digest = (digest ^ data[i]) * 1099511628211ull;
	}
	return digest;
}

static int look_up(struct steady *steady, const struct place *place, uint64_t *ret_digest)
{
	struct cnre_expert expert;
	int r = cnre_acquire(steady->client, place->layer, place->expert, ACQUIRE_NS, &expert);

	if (r < 0)
		return r;
	*ret_digest = digest_of(&expert);
	return cnre_release(steady->client, &expert);
}

/* The first expert in a tier, from a place on; 0 or -1. */
static int find(struct steady *steady, enum cnre_tier wanted, struct place *place)
{
	for (; place->layer < steady->info.layer_count; place->layer++, place->expert = 0) {
		for (; place->expert < steady->info.expert_count; place->expert++) {
			uint8_t tier;

			if (cnre_resident(steady->client, place->layer, &place->expert, 1, &tier) >= 0 &&
			    tier == wanted)
				return 0;
		}
	}
	return -1;
}

static int remember_residents(struct steady *steady)
{
	struct place place = {0};

	for (; steady->count < EXPERTS_MAX && find(steady, CNRE_RAM, &place) == 0; place.expert++) {
		if (look_up(steady, &place, &place.digest) < 0)
			return -1;
		steady->place[steady->count++] = place;
	}
	return steady->count > 0 ? 0 : -1;
}

static void count_slowest(struct steady *steady, int64_t ms)
{
	if ((unsigned long long)ms > atomic_load(&steady->slowest_ms))
		atomic_store(&steady->slowest_ms, (unsigned long long)ms);
}

static void *run(void *context)
{
	struct steady *steady = context;
	const struct timespec pace = {.tv_nsec = PACE_NS};
	uint64_t digest;

	for (uint32_t i = 0; !atomic_load(&steady->ending); i = (i + 1) % steady->count) {
		int64_t began_ms = now_ms();
		int r = look_up(steady, &steady->place[i], &digest);

		atomic_fetch_add(&steady->calls, 1);
		count_slowest(steady, now_ms() - began_ms);
		if (r < 0)
			atomic_fetch_add(&steady->failed, 1);
		else if (digest != steady->place[i].digest)
			atomic_fetch_add(&steady->changed, 1);
		(void)nanosleep(&pace, NULL);
	}
	return NULL;
}

static void ask_fresh(struct steady *steady)
{
	struct place place = {0};
	int64_t began_ms = now_ms();
	int r = -1000; /* none is left */

	if (find(steady, CNRE_ABSENT, &place) == 0)
		r = look_up(steady, &place, &place.digest);
	printf("fresh %d %lld\n", r, (long long)(now_ms() - began_ms));
}

static void report(struct steady *steady, const struct cnre_expert *held, uint64_t held_digest)
{
	if (digest_of(held) != held_digest)
		atomic_fetch_add(&steady->changed, 1);
	printf("calls %llu failed %llu changed %llu slowest %llu\n", atomic_load(&steady->calls),
	       atomic_load(&steady->failed), atomic_load(&steady->changed), atomic_load(&steady->slowest_ms));
}

static void take_commands(struct steady *steady, const struct cnre_expert *held)
{
	uint64_t held_digest = digest_of(held);
	char line[32];

	printf("attached %u\n", steady->count);
	while (fgets(line, sizeof line, stdin) != NULL) {
		if (strcmp(line, "fresh\n") == 0)
			ask_fresh(steady);
		else
			report(steady, held, held_digest);
	}
}

int main(int argc, char *argv[])
{
	static struct steady steady = {.info.size = sizeof steady.info};
	struct cnre_options options = {.size = sizeof options, .name = "steady", .timeout_ns = ACQUIRE_NS};
	struct cnre_expert held;
	pthread_t thread;
	int r;

	if (argc != 3)
		return 2;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	options.socket = argv[2];
	options.flags = CNRE_NO_AUTOSTART;
	r = cnre_attach(&steady.client, argv[1], &options);
	if (r < 0 || cnre_model(steady.client, &steady.info) < 0 || remember_residents(&steady) < 0 ||
	    cnre_acquire(steady.client, steady.place[0].layer, steady.place[0].expert, ACQUIRE_NS, &held) < 0) {
		printf("cannot begin: %s\n", r < 0 ? strerror(-r) : "nothing is resident");
		return 1;
	}
	if (pthread_create(&thread, NULL, run, &steady) != 0)
		return 1;
	take_commands(&steady, &held);
	atomic_store(&steady.ending, 1);
	(void)pthread_join(thread, NULL);
	(void)cnre_release(steady.client, &held);
	cnre_detach(steady.client);
	return 0;
}
