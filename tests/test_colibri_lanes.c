/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expert store as the DeepSeek V4 engine uses it, several processes at once: loader threads look up, the compute
 * thread takes the views by value in ascending order of experts and releases them, and the pool is small.
 */
#include "client/colibri/provider.h"
#include "tests/support/child.h"
#include "tests/support/v4_store.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

TestSuite(colibri_lanes, .timeout = 240);

enum { PROCESSES = 4, LANES = 16, LAYERS = 4, EXPERTS = 48, ROUNDS = 12 };

/* What all processes share. */
struct shared {
	uint64_t sum[LAYERS][EXPERTS];
	_Atomic uint32_t begun;           /* processes that have computed a layer */
	_Atomic int has_finished[PROCESSES], may_end;
	_Atomic uint64_t computed, copied_from_builtin, failed, wrong;
};

static struct world world;
static struct shared *shared;

static uint64_t sum_of(const ColiExpertView *view)
{
	struct cnre_expert expert = {0};
	const ColiTensorView *tensor[] = {&view->gate, &view->up, &view->down};

	for (int i = 0; i < 3; i++) {
		expert.part[i].data = tensor[i]->data;
		expert.part[i].bytes = tensor[i]->data_bytes;
		expert.part[i + CNRE_GATE_SCALE].data = tensor[i]->scales;
		expert.part[i + CNRE_GATE_SCALE].bytes = tensor[i]->scale_bytes;
	}
	return world_sum(&expert);
}

/* ---- one process ---- */

struct job {
	ColiExpertStore *store;
	pthread_t thread;
	int layer, expert, result;
	ColiExpertView view;
};

static void *load(void *argument)
{
	struct job *job = argument;

	job->result = v4_lookup(job->store, job->layer, job->expert, &job->view);
	return NULL;
}

static int start(struct job *job, ColiExpertStore *store, int layer, int expert)
{
	*job = (struct job){.store = store, .layer = layer, .expert = expert};
	return pthread_create(&job->thread, NULL, load, job);
}

static void compute(ColiExpertStore *store, ColiExpertView view)
{
	if (sum_of(&view) != shared->sum[view.key.layer][view.key.expert])
		atomic_fetch_add(&shared->wrong, 1);
	atomic_fetch_add(&shared->computed, 1);
	v4_release(store, &view); /* of a copy, on another thread than the lookup's */
}

/* The union of a prefill: every expert in ascending order, LANES of them on their way. */
static int compute_layer(ColiExpertStore *store, int layer)
{
	static _Thread_local struct job job[LANES];

	for (int i = 0; i < LANES; i++)
		if (start(&job[i], store, layer, i) != 0)
			return 1;
	for (int expert = 0; expert < EXPERTS; expert++) {
		struct job *mine = &job[expert % LANES];
		ColiExpertView view;

		(void)pthread_join(mine->thread, NULL);
		if (mine->result != 0)
			atomic_fetch_add(&shared->failed, 1);
		view = mine->view;
		if (expert + LANES < EXPERTS && start(mine, store, layer, expert + LANES) != 0)
			return 1;
		if (view.lease != NULL)
			compute(store, view);
	}
	return 0;
}

static int run_engine(void *argument)
{
	const ColiDeepSeekV4ExpertStoreOptions options = {.model_dir = world.model};
	ColiExpertStore *store = NULL;
	struct v4_builtin *builtin;
	char message[256] = "";
	int r = 0;

	if (coli_expert_store_backend_open_selected(NULL, NULL, &options, &store, message, sizeof message) != 0)
		return 2;
	builtin = store->state;
	for (int round = 0; round < ROUNDS && r == 0; round++) {
		r = compute_layer(store, round % LAYERS);
		if (round == 0)
			atomic_fetch_add(&shared->begun, 1);
	}
	atomic_fetch_add(&shared->copied_from_builtin, atomic_load(&builtin->lookups));
	atomic_store((_Atomic int *)argument, 1);
	while (!atomic_load(&shared->may_end))
		(void)usleep(1000); /* until the manager was asked what is leased */
	store->ops->destroy(store);
	return r;
}

/* ---- all of them ---- */

static void learn_sums(void)
{
	struct cnre *client = world_attach(&world, 1 << 16);

	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		for (uint32_t i = 0; i < EXPERTS; i++) {
			struct cnre_expert expert;

			cr_assert_eq(cnre_acquire(client, layer, i, -1, &expert), 0);
			shared->sum[layer][i] = world_sum(&expert);
			cr_assert_eq(cnre_release(client, &expert), 0);
		}
	}
	cnre_detach(client);
}

static void begin(const char *ram)
{
	const char *const model[] = {"--layers", "4", "--experts", "48", NULL};
	const char *const options[] = {"--ram", ram, NULL};

	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(shared, MAP_FAILED);
	world_open(&world);
	world_generate(&world, model);
	cr_assert_gt(world_start(&world, options), 0);
	learn_sums();
	(void)setenv("COLI_EXPERT_STORE", "cnre", 1);
	(void)setenv("COLI_CNRE_SOCKET", world.socket, 1);
	(void)setenv("V4_LOADER_LANES", "16", 1);
}

static int have_finished(void *context)
{
	for (int i = *(const int *)context; i < PROCESSES; i++)
		if (!atomic_load(&shared->has_finished[i]))
			return 0;
	return 1;
}

static int has_no_client(void *context)
{
	(void)context;
	return world_stat(&world, "clients") == 0;
}

/* Asked while the engines still live, since the end of a process ends its leases in any case. */
static void expect_nothing_leased(int first)
{
	cr_expect(world_wait_until(have_finished, &first, 120), "some engine does not get through");
	cr_expect_eq(world_stat(&world, "leased_objects"), 0, "no lease is lost");
	cr_expect_gt(world_stat(&world, "evictions"), 0, "without pressure this shows nothing");
	atomic_store(&shared->may_end, 1);
}

static void end(void)
{
	cr_expect(world_wait_until(has_no_client, NULL, 20));
	cr_expect_eq(world_stat(&world, "reserved_slabs"), 0);
	cr_expect_eq(world_stat(&world, "load_errors"), 0);
	cr_expect_eq(atomic_load(&shared->failed), 0, "no lookup failed");
	cr_expect_eq(atomic_load(&shared->wrong), 0, "no byte was another's");
	cr_expect_eq(atomic_load(&shared->copied_from_builtin), 0, "no engine had to read by itself");
	world_close(&world);
	(void)munmap(shared, sizeof *shared);
}

Test(colibri_lanes, sixteen_lanes_of_four_processes_lose_no_lease_in_a_small_pool)
{
	pid_t child[PROCESSES];

	begin("1536K"); /* about a third of the experts */
	for (int i = 0; i < PROCESSES; i++)
		child[i] = child_start(run_engine, &shared->has_finished[i]);
	expect_nothing_leased(0);
	for (int i = 0; i < PROCESSES; i++)
		cr_expect_eq(child_wait(child[i]), 0);
	cr_expect_eq(atomic_load(&shared->computed), PROCESSES * ROUNDS * EXPERTS);
	end();
}

static int has_one_begun(void *context)
{
	(void)context;
	return atomic_load(&shared->begun) > 0;
}

/* The others end as ever, and what the killed one held comes back without it. */
Test(colibri_lanes, engine_killed_in_the_middle_takes_no_lease_along)
{
	pid_t child[PROCESSES];

	begin("1536K");
	for (int i = 0; i < PROCESSES; i++)
		child[i] = child_start(run_engine, &shared->has_finished[i]);
	cr_assert(world_wait_until(has_one_begun, NULL, 60));
	(void)kill(child[0], SIGKILL);
	expect_nothing_leased(1);
	for (int i = 0; i < PROCESSES; i++) {
		int r = child_wait(child[i]);

		cr_expect(r == 0 || (i == 0 && r == -SIGKILL), "process %d: %d", i, r);
	}
	cr_expect_geq(atomic_load(&shared->computed), (PROCESSES - 1) * ROUNDS * EXPERTS);
	end();
}

/*
 * Goal: a pool that grants every engine far less than its lanes want is slow, and neither an error nor a deadlock.
 * Method: the smallest pool in which four engines fit.
 */
Test(colibri_lanes, lanes_beyond_the_reservation_do_not_wait_for_each_other)
{
	pid_t child[PROCESSES];

	begin("1M");
	for (int i = 0; i < PROCESSES; i++)
		child[i] = child_start(run_engine, &shared->has_finished[i]);
	expect_nothing_leased(0);
	for (int i = 0; i < PROCESSES; i++)
		cr_expect_eq(child_wait(child[i]), 0);
	cr_expect_eq(atomic_load(&shared->computed), PROCESSES * ROUNDS * EXPERTS);
	end();
}
