/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the death of one client costs the others: two processes hold leases and measure every acquire of theirs, of
 * residents and of cold experts alike, while a third attaches, leases and then (quiet) does not exist, (leave) releases
 * and detaches, or (die) kills itself with leases held. One line of JSON; death.sh repeats it in turns.
 *
 * usage: bench_death SOCKET MODEL quiet|leave|die SECONDS SEED
 */
#include "base/clock.h"

#include <cnre/cnre.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 2
#define SAMPLES_MAX (1u << 20)
#define HELD 8u
#define THIRD_PAUSE_NS 10000000           /* a hundred thirds a second at most */

struct shared {
	_Atomic uint32_t attached, go, stop, failed, thirds;
	uint32_t count[WORKERS];
	uint32_t sample_ns[WORKERS][SAMPLES_MAX];
};

static struct shared *shared;
static char **arguments;

static int attach(struct cnre **ret_client, struct cnre_model_info *info, const char *name)
{
	struct cnre_options options = {.size = sizeof options, .socket = arguments[1], .name = name, .timeout_ns = 20 * CNRE_NS_PER_S};
	int r;

	*info = (struct cnre_model_info){.size = sizeof *info};
	options.reserve_bytes = 24ull << 20;
	r = cnre_attach(ret_client, arguments[2], &options);
	return r < 0 ? r : cnre_model(*ret_client, info);
}

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static int acquire_at(struct cnre *client, const struct cnre_model_info *info, uint32_t object, struct cnre_expert *ret_expert)
{
	return cnre_acquire(client, object / info->expert_count, object % info->expert_count, 20 * CNRE_NS_PER_S, ret_expert);
}

static void give_up(void)
{
	atomic_store(&shared->failed, 1);
	_exit(1);
}

static void measure(int worker)
{
	struct cnre_expert held[HELD], expert;
	struct cnre_model_info info;
	struct cnre *client;
	uint32_t seed = (uint32_t)strtoul(arguments[5], NULL, 10) * 16 + (uint32_t)worker, count = 0;

	if (attach(&client, &info, "bench_death") < 0)
		give_up();
	for (uint32_t i = 0; i < HELD; i++)
		if (acquire_at(client, &info, i, &held[i]) < 0)
			give_up();
	(void)atomic_fetch_add(&shared->attached, 1);
	while (atomic_load(&shared->go) == 0)
		(void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	while (atomic_load_explicit(&shared->stop, memory_order_relaxed) == 0 && count < SAMPLES_MAX) {
		uint32_t object = next_random(&seed) % info.object_count;
		int64_t start_ns = cnre_clock_now_ns(), ns;

		if (acquire_at(client, &info, object, &expert) < 0)
			give_up();
		ns = cnre_clock_now_ns() - start_ns;
		(void)cnre_release(client, &expert);
		shared->sample_ns[worker][count++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
		(void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); /* an engine computes in between, and both CPUs have time */
	}
	shared->count[worker] = count;
	for (uint32_t i = 0; i < HELD; i++)
		(void)cnre_release(client, &held[i]);
	cnre_detach(client);
	_exit(0);
}

static void be_third(int dies)
{
	struct cnre_expert held[HELD];
	struct cnre_model_info info;
	struct cnre *client;
	uint32_t seed = (uint32_t)getpid();

	if (attach(&client, &info, "third") < 0)
		give_up();
	for (uint32_t i = 0; i < HELD; i++)
		if (acquire_at(client, &info, next_random(&seed) % info.object_count, &held[i]) < 0)
			give_up();
	if (dies)
		(void)kill(getpid(), SIGKILL);
	for (uint32_t i = 0; i < HELD; i++)
		(void)cnre_release(client, &held[i]);
	cnre_detach(client);
	_exit(0);
}

static void run_thirds(int64_t end_ns)
{
	int is_quiet = strcmp(arguments[3], "quiet") == 0, dies = strcmp(arguments[3], "die") == 0;

	while (cnre_clock_now_ns() < end_ns && atomic_load(&shared->failed) == 0) {
		pid_t third = is_quiet ? -1 : fork();

		if (third == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			be_third(dies);
		}
		if (third > 0 && waitpid(third, NULL, 0) == third)
			(void)atomic_fetch_add(&shared->thirds, 1);
		(void)nanosleep(&(struct timespec){.tv_nsec = THIRD_PAUSE_NS}, NULL);
	}
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void print(void)
{
	uint32_t total = shared->count[0] + shared->count[1];
	uint32_t *all = malloc(((size_t)total + 1) * sizeof *all);

	if (all == NULL || total == 0)
		exit(1);
	memcpy(all, shared->sample_ns[0], shared->count[0] * sizeof *all);
	memcpy(all + shared->count[0], shared->sample_ns[1], shared->count[1] * sizeof *all);
	qsort(all, total, sizeof *all, compare);
	printf("{\"p50_us\":%.2f,\"p99_us\":%.2f,\"p999_us\":%.2f,\"longest_us\":%.1f,\"samples\":%u,\"thirds\":%u}\n", all[total / 2] / 1e3,
	       all[(size_t)total * 99 / 100] / 1e3, all[(size_t)total * 999 / 1000] / 1e3, all[total - 1] / 1e3, total,
	       atomic_load(&shared->thirds));
	free(all);
}

int main(int argc, char **argv)
{
	pid_t worker[WORKERS];
	int status;

	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	arguments = argv;
	if (argc != 6 || shared == MAP_FAILED)
		return 2;
	for (int i = 0; i < WORKERS; i++) {
		worker[i] = fork();
		if (worker[i] == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			measure(i);
		}
	}
	while (atomic_load(&shared->attached) < WORKERS && atomic_load(&shared->failed) == 0)
		(void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	atomic_store(&shared->go, 1);
	run_thirds(cnre_clock_now_ns() + (int64_t)strtol(argv[4], NULL, 10) * CNRE_NS_PER_S);
	atomic_store(&shared->stop, 1);
	for (int i = 0; i < WORKERS; i++)
		(void)waitpid(worker[i], &status, 0);
	if (atomic_load(&shared->failed) != 0) {
		fprintf(stderr, "bench_death: a client failed\n");
		return 1;
	}
	print();
	return 0;
}
