/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that read all the time; see readers.h. Numbers are only counted and looked at, so every access is relaxed. */
#include "tests/support/readers.h"

#include "base/clock.h"
#include "cnre/cnre.h"
#include "tests/support/truth.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_NS (60 * CNRE_NS_PER_S)
#define ERROR_PAUSE_US 1000

struct numbers {
	_Atomic uint64_t reads, errors, wrong, longest_ns;
	_Atomic int error;
};

struct readers_shared {
	_Atomic int stop;
	struct numbers numbers[READERS_MAX];
};

static void add(_Atomic uint64_t *number)
{
	atomic_fetch_add_explicit(number, 1, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *number)
{
	return atomic_load_explicit((_Atomic uint64_t *)number, memory_order_relaxed);
}

static void note_time(struct numbers *numbers, int64_t took_ns)
{
	if ((uint64_t)took_ns > get(&numbers->longest_ns)) /* written here and by readers_forget only */
		atomic_store_explicit(&numbers->longest_ns, (uint64_t)took_ns, memory_order_relaxed);
}

static void read_one(struct cnre *client, const struct truth *truth, struct numbers *numbers, uint32_t layer,
		     uint32_t expert)
{
	int64_t begun_ns = cnre_clock_now_ns();
	struct cnre_expert leased;
	int r = cnre_acquire(client, layer, expert, PATIENCE_NS, &leased);

	note_time(numbers, cnre_clock_now_ns() - begun_ns);
	if (r < 0) {
		atomic_store_explicit(&numbers->error, r, memory_order_relaxed);
		add(&numbers->errors);
		(void)usleep(ERROR_PAUSE_US);
		return;
	}
	if (truth_compare(truth, &leased) != 0)
		add(&numbers->wrong);
	(void)cnre_release(client, &leased);
	add(&numbers->reads);
}

static int read_all_the_time(struct readers_shared *shared, int number, const struct world *world,
			     const struct truth *truth, uint32_t layers, uint32_t experts)
{
	struct cnre_options options = {.size = sizeof options, .socket = world->socket, .timeout_ns = PATIENCE_NS};
	uint32_t random = (uint32_t)number * 7919 + 1;
	struct cnre *client;

	options.reserve_bytes = 1; /* rounded up to one slab: it holds one at a time */
	if (cnre_attach(&client, world->model, &options) != 0)
		return 2;
	while (!atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
		random = random * 1664525 + 1013904223;
		read_one(client, truth, &shared->numbers[number], (random >> 8) % layers, (random >> 16) % experts);
	}
	cnre_detach(client);
	return 0;
}

void readers_start(struct readers *readers, int count, const struct world *world, const struct truth *truth,
		   uint32_t layers, uint32_t experts, int spare_fd)
{
	cr_assert_leq(count, READERS_MAX);
	*readers = (struct readers){.count = count};
	readers->shared =
		mmap(NULL, sizeof *readers->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(readers->shared, MAP_FAILED);
	for (int i = 0; i < count; i++) {
		readers->pid[i] = fork();
		cr_assert_geq(readers->pid[i], 0);
		if (readers->pid[i] != 0)
			continue;
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (spare_fd >= 0)
			(void)close(spare_fd);
		_exit(read_all_the_time(readers->shared, i, world, truth, layers, experts));
	}
}

struct readers_seen readers_see(const struct readers *readers)
{
	struct readers_seen seen = {.reads_least = UINT64_MAX};

	for (int i = 0; i < readers->count; i++) {
		const struct numbers *numbers = &readers->shared->numbers[i];
		int error = atomic_load_explicit((_Atomic int *)&numbers->error, memory_order_relaxed);
		double longest_s = (double)get(&numbers->longest_ns) / 1e9;

		if (get(&numbers->reads) < seen.reads_least)
			seen.reads_least = get(&numbers->reads);
		seen.errors += get(&numbers->errors);
		seen.wrong += get(&numbers->wrong);
		if (error != 0)
			seen.error = error;
		if (longest_s > seen.longest_s)
			seen.longest_s = longest_s;
	}
	return seen;
}

void readers_forget(const struct readers *readers)
{
	for (int i = 0; i < readers->count; i++) {
		struct numbers *numbers = &readers->shared->numbers[i];

		atomic_store_explicit(&numbers->reads, 0, memory_order_relaxed);
		atomic_store_explicit(&numbers->errors, 0, memory_order_relaxed);
		atomic_store_explicit(&numbers->longest_ns, 0, memory_order_relaxed);
		atomic_store_explicit(&numbers->error, 0, memory_order_relaxed);
	}
}

void readers_stop(struct readers *readers)
{
	atomic_store_explicit(&readers->shared->stop, 1, memory_order_relaxed);
	for (int i = 0; i < readers->count; i++) {
		int status = -1;

		(void)waitpid(readers->pid[i], &status, 0);
		cr_expect_eq(status, 0, "reader %d ended with %d", i, status);
	}
	(void)munmap(readers->shared, sizeof *readers->shared);
	readers->count = 0;
}
