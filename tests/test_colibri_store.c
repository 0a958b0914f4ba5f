/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of the expert store's operations, against a real manager and a stand-in for what the engine has around a
 * store (tests/support/v4_store.h). The store under test is compiled against the headers in tests/support/colibri/.
 */
#include "client/colibri/provider.h"
#include "tests/support/child.h"
#include "tests/support/truth.h"
#include "tests/support/v4_store.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of client/colibri/expert_store.c: runs before main, and here again under other switches. */
void cnre_colibri_register_store(void);

TestSuite(colibri_store, .timeout = 120);

enum { LAYERS = 4, EXPERTS = 16 };

static struct world world;
static char message[256];

static void begin(const char *const *manager_options)
{
	world_open(&world);
	world_generate(&world, NULL);
	(void)setenv("COLI_EXPERT_STORE", "cnre", 1);
	(void)setenv("COLI_CNRE_SOCKET", world.socket, 1);
	(void)setenv("V4_LOADER_LANES", "1", 1);
	cr_assert_gt(world_start(&world, manager_options), 0);
}

static int try_open(ColiExpertStore **ret_store)
{
	const ColiDeepSeekV4ExpertStoreOptions options = {
		.model_dir = world.model, .layers = LAYERS, .experts_per_layer = EXPERTS};

	message[0] = '\0';
	return coli_expert_store_backend_open_selected(NULL, NULL, &options, ret_store, message, sizeof message);
}

static ColiExpertStore *open_store(void)
{
	ColiExpertStore *store = NULL;

	cr_assert_eq(try_open(&store), 0, "%s", message);
	return store;
}

static void end(ColiExpertStore *store)
{
	store->ops->destroy(store);
	cr_expect_eq(atomic_load(&v4_builtins_open), 0, "the built-in store is destroyed, too");
	if (world.manager > 0) {
		cr_expect_eq(world_stat(&world, "leased_objects"), 0);
		cr_expect_eq(world_stat(&world, "clients"), 0);
	}
	world_close(&world);
}

static struct v4_builtin *builtin_of(const ColiExpertStore *store)
{
	return store->state;
}

static int is_cleared(const ColiExpertView *view)
{
	static const ColiExpertView cleared;

	return memcmp(view, &cleared, sizeof cleared) == 0;
}

/* 0: the view's bytes are the file's. */
static int compare(const struct truth *truth, const ColiExpertView *view)
{
	const ColiTensorView *tensor[] = {&view->gate, &view->up, &view->down};
	struct cnre_expert expert = {.layer = (uint32_t)view->key.layer, .expert = (uint32_t)view->key.expert};

	for (int i = 0; i < 3; i++) {
		expert.part[i].data = tensor[i]->data;
		expert.part[i].bytes = tensor[i]->data_bytes;
		expert.part[i + CNRE_GATE_SCALE].data = tensor[i]->scales;
		expert.part[i + CNRE_GATE_SCALE].bytes = tensor[i]->scale_bytes;
	}
	return truth_compare(truth, &expert);
}

/* ---- lookup and release ---- */

Test(colibri_store, lookup_gives_the_checkpoints_bytes_and_release_clears_the_view)
{
	ColiExpertStore *store;
	struct truth *truth;

	begin(NULL);
	store = open_store();
	cr_assert_eq(truth_open(&truth, world.model), 0);
	for (int layer = 0; layer < LAYERS; layer++) {
		for (int expert = 0; expert < EXPERTS; expert++) {
			ColiExpertView view;

			memset(&view, 0xff, sizeof view); /* what was in it does not matter */
			cr_assert_eq(v4_lookup(store, layer, expert, &view), 0);
			cr_assert(view.key.layer == layer && view.key.expert == expert);
			cr_assert_eq(compare(truth, &view), 0, "layer %d expert %d", layer, expert);
			cr_assert_eq(view.gate.format, COLI_TENSOR_Q8_ROW);
			cr_assert_eq(view.gate.scale_format, COLI_SCALE_F32);
			cr_assert(view.gate.rows == 64 && view.gate.columns == 64 && view.gate.block_rows == 1);
			cr_assert_null(view.gate.gpu);
			store->ops->release(store, &view);
			cr_assert(is_cleared(&view));
		}
	}
	truth_close(truth);
	cr_expect_eq(atomic_load(&builtin_of(store)->lookups), 0, "the built-in store was asked for nothing");
	end(store);
}

Test(colibri_store, release_of_a_cleared_view_is_nothing)
{
	ColiExpertView view, held;
	ColiExpertStore *store;

	begin(NULL);
	store = open_store();
	memset(&view, 0, sizeof view);
	store->ops->release(store, &view);
	cr_assert_eq(v4_lookup(store, 0, 3, &held), 0);
	cr_assert_eq(v4_lookup(store, 0, 3, &view), 0);
	store->ops->release(store, &view);
	store->ops->release(store, &view);
	store->ops->release(store, NULL);
	cr_expect_eq(world_stat(&world, "leased_objects"), 1, "the other lease of that expert is still there");
	store->ops->release(store, &held);
	end(store);
}

/* The contract forbids it; what it must not do is to take another's lease, who computes with the bytes. */
Test(colibri_store, second_release_of_a_copied_view_takes_nobody_elses_lease)
{
	ColiExpertView view, copy, other;
	ColiExpertStore *store;

	begin(NULL);
	store = open_store();
	cr_assert_eq(v4_lookup(store, 0, 3, &view), 0);
	copy = view;
	v4_release(store, &view);
	cr_assert_eq(v4_lookup(store, 0, 4, &other), 0);
	cr_assert_eq(other.lease, copy.lease, "the place of the first lease has another now");
	v4_release(store, &copy);
	cr_expect_eq(world_stat(&world, "leased_objects"), 1);
	v4_release(store, &other);
	end(store);
}

Test(colibri_store, failed_lookup_clears_the_view)
{
	ColiExpertView view;
	ColiExpertStore *store;

	begin(NULL);
	store = open_store();
	memset(&view, 0xff, sizeof view);
	cr_expect_neq(store->ops->lookup(store, (ColiExpertKey){-1, 0}, &view), 0);
	cr_expect(is_cleared(&view));
	memset(&view, 0xff, sizeof view);
	cr_expect_neq(store->ops->lookup(store, (ColiExpertKey){0, -1}, &view), 0);
	cr_expect(is_cleared(&view));
	/* An expert that CNRE does not have is the built-in store's to refuse. */
	atomic_store(&builtin_of(store)->fails, 1u);
	memset(&view, 0xff, sizeof view);
	cr_expect_neq(store->ops->lookup(store, (ColiExpertKey){LAYERS, 0}, &view), 0);
	cr_expect(is_cleared(&view), "also where the built-in store left something in it");
	cr_expect_neq(store->ops->lookup(store, (ColiExpertKey){0, 0}, NULL), 0);
	end(store);
}

struct releaser {
	ColiExpertStore *store;
	ColiExpertView view;
};

static void *release_elsewhere(void *argument)
{
	struct releaser *releaser = argument;

	v4_release(releaser->store, &releaser->view);
	return NULL;
}

Test(colibri_store, copy_of_a_view_is_released_by_another_thread)
{
	struct releaser releaser;
	ColiExpertView view;
	pthread_t thread;

	begin(NULL);
	releaser.store = open_store();
	cr_assert_eq(v4_lookup(releaser.store, 1, 1, &view), 0);
	releaser.view = view;
	cr_assert_eq(pthread_create(&thread, NULL, release_elsewhere, &releaser), 0);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_expect_eq(world_stat(&world, "leased_objects"), 0);
	end(releaser.store);
}

/* ---- capacity ---- */

/*
 * Goal: an engine that holds more than its reservation gets every expert, none of them wrong.
 * Method: one lane, so that the reservation is small, and all experts of the model are held at once; the pool is so
 * small that not all of them can be resident.
 */
Test(colibri_store, beyond_the_reservation_there_are_copies_and_no_failure)
{
	const char *const options[] = {"--ram", "512K", NULL};
	ColiExpertView view[LAYERS * EXPERTS];
	ColiExpertStore *store;
	struct truth *truth;
	uint64_t leased;

	begin(options);
	store = open_store();
	cr_assert_eq(truth_open(&truth, world.model), 0);
	for (int i = 0; i < LAYERS * EXPERTS; i++)
		cr_assert_eq(v4_lookup(store, i / EXPERTS, i % EXPERTS, &view[i]), 0, "lookup %d", i);
	leased = world_stat(&world, "leased_objects");
	cr_expect_eq(leased, world_stat(&world, "reserved_slabs") - 1, "one is kept free to make copies");
	cr_expect_lt(leased, LAYERS * EXPERTS);
	for (int i = 0; i < LAYERS * EXPERTS; i++)
		cr_assert_eq(compare(truth, &view[i]), 0, "expert %d of layer %d", i % EXPERTS, i / EXPERTS);
	cr_expect_eq(atomic_load(&builtin_of(store)->lookups), 0);
	for (int i = LAYERS * EXPERTS; i-- > 0;)
		v4_release(store, &view[i]);
	cr_expect_eq(world_stat(&world, "leased_objects"), 0);
	/* Afterwards a lookup is a lease again. */
	cr_assert_eq(v4_lookup(store, 0, 0, &view[0]), 0);
	cr_expect_eq(world_stat(&world, "leased_objects"), 1);
	v4_release(store, &view[0]);
	truth_close(truth);
	end(store);
}

/* ---- what is broken ---- */

Test(colibri_store, without_a_manager_the_engine_reads_by_itself_and_goes_on)
{
	ColiExpertView resident, view;
	ColiExpertStore *store;
	struct truth *truth;

	begin(NULL);
	store = open_store();
	cr_assert_eq(truth_open(&truth, world.model), 0);
	cr_assert_eq(v4_lookup(store, 0, 0, &resident), 0);
	(void)world_stop(&world, SIGKILL);
	cr_expect_eq(compare(truth, &resident), 0, "what is leased stays readable");
	cr_assert_eq(v4_lookup(store, 2, 5, &view), 0, "a miss");
	cr_expect_eq(atomic_load(&builtin_of(store)->leases), 1, "is the built-in store's");
	v4_release(store, &view);
	cr_expect_eq(atomic_load(&builtin_of(store)->leases), 0, "and goes back to it");
	cr_expect(is_cleared(&view));
	v4_release(store, &resident);
	cr_assert_eq(v4_lookup(store, 0, 0, &view), 0, "a hit");
	cr_expect_eq(compare(truth, &view), 0);
	v4_release(store, &view);
	truth_close(truth);
	end(store);
}

static int look_up_in_child(void *argument)
{
	ColiExpertStore *store = argument;
	ColiExpertView view;
	int r = v4_lookup(store, 0, 1, &view);

	if (r != 0 || atomic_load(&builtin_of(store)->leases) != 1)
		return 1;
	v4_release(store, &view);
	return 0;
}

Test(colibri_store, forked_child_reads_by_itself)
{
	ColiExpertStore *store;

	begin(NULL);
	store = open_store();
	cr_expect_eq(child_run(look_up_in_child, store), 0);
	end(store);
}

/* ---- prefetch and statistics ---- */

Test(colibri_store, prefetch_returns_what_it_accepted_and_holds_nothing)
{
	const ColiExpertKey keys[] = {{0, 1}, {0, 2}, {1, 3}, {LAYERS, 0}, {2, -1}, {3, 4}};
	ColiExpertStore *store;

	begin(NULL);
	store = open_store();
	cr_expect_eq(store->ops->prefetch(store, keys, 6), 4);
	cr_expect_eq(store->ops->prefetch(store, NULL, 6), 0);
	cr_expect_eq(store->ops->prefetch(store, keys, 0), 0);
	cr_expect_eq(world_stat(&world, "leased_objects"), 0);
	end(store);
}

Test(colibri_store, statistics_are_always_there)
{
	ColiExpertStoreStats stats = {.requests = 77};
	ColiExpertStore *store;
	ColiExpertView view;

	begin(NULL);
	store = open_store();
	store->ops->stats(store, &stats);
	cr_expect_eq(stats.requests, 0);
	cr_expect_gt(stats.capacity_bytes, 0);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(v4_lookup(store, 0, 0, &view), 0);
		v4_release(store, &view);
	}
	store->ops->stats(store, &stats);
	cr_expect_eq(stats.requests, 3);
	cr_expect_eq(stats.hits, 2);
	cr_expect_eq(stats.misses, 1);
	cr_expect_gt(stats.bytes_read, 0);
	cr_expect_gt(stats.resident_bytes, 0);
	store->ops->stats(store, NULL);
	end(store);
}

/* ---- the built-in store behind it ---- */

Test(colibri_store, who_looks_into_the_state_finds_the_built_in_one)
{
	ColiExpertStore *store;
	char hex[8];

	begin(NULL);
	store = open_store();
	cr_expect_eq(v4_helper_looks(store), 0);
	cr_expect_eq(store->ops->emap(store, hex, sizeof hex, NULL), 0, "operations that are not ours stay");
	cr_expect_eq(atomic_load(&builtin_of(store)->emaps), 2);
	end(store);
}

Test(colibri_store, built_in_store_that_does_not_open_leaves_nothing_attached)
{
	ColiExpertStore *store = (ColiExpertStore *)&world;

	begin(NULL);
	atomic_store(&v4_builtin_opens_fail, 1);
	cr_expect_neq(try_open(&store), 0);
	cr_expect_str_eq(message, "the built-in store has no room");
	cr_expect_eq(store, (ColiExpertStore *)&world, "output is untouched");
	cr_expect_eq(world_stat(&world, "clients"), 0);
	world_close(&world);
}

Test(colibri_store, absent_manager_is_said_and_nothing_is_opened)
{
	ColiExpertStore *store = NULL;

	begin(NULL);
	(void)setenv("COLI_CNRE_SOCKET", "none", 1);
	cr_expect_neq(try_open(&store), 0);
	cr_expect_not_null(strstr(message, "no manager"), "%s", message);
	cr_expect_null(store);
	cr_expect_eq(atomic_load(&v4_builtins_open), 0);
	world_close(&world);
}

/* ---- the switches ---- */

static int is_chosen_with(const char *cache, const char *store)
{
	const char *chosen;

	(void)unsetenv("COLI_EXPERT_STORE");
	(void)setenv("COLI_CACHE", cache, 1);
	if (store != NULL)
		(void)setenv("COLI_EXPERT_STORE", store, 1);
	cnre_colibri_register_store();
	chosen = getenv("COLI_EXPERT_STORE");
	return chosen != NULL && strcmp(chosen, "cnre") == 0;
}

Test(colibri_store, coli_cache_chooses_it_unless_a_store_is_named)
{
	cr_assert_not_null(coli_expert_store_backend_lookup("cnre"), "registered before main");
	cr_expect(is_chosen_with("cnre", NULL));
	cr_expect(is_chosen_with("cnre", ""));
	cr_expect_not(is_chosen_with("cnre", "auto"));
	cr_expect_not(is_chosen_with("builtin", NULL));
}

/* ---- the real engine's checkpoint ---- */

/* The engine calls gate, down and up w1, w2 and w3. */
static void check_tensor(const struct truth *truth, const ColiExpertView *view, const ColiTensorView *tensor, int number)
{
	struct truth_tensor data, scales;
	char name[96];

	(void)snprintf(name, sizeof name, "layers.%d.ffn.experts.%d.w%d.weight", view->key.layer, view->key.expert, number);
	cr_assert(truth_tensor(truth, name, &data), "%s", name);
	(void)snprintf(name, sizeof name, "layers.%d.ffn.experts.%d.w%d.scale", view->key.layer, view->key.expert, number);
	cr_assert(truth_tensor(truth, name, &scales), "%s", name);
	cr_assert(tensor->data_bytes == data.bytes && memcmp(tensor->data, data.data, data.bytes) == 0, "%s", name);
	cr_assert(tensor->scale_bytes == scales.bytes && memcmp(tensor->scales, scales.data, scales.bytes) == 0, "%s",
		  name);
	cr_assert(tensor->format == COLI_TENSOR_FP4_NATIVE_BLOCK && tensor->scale_format == COLI_SCALE_UE8M0);
	cr_assert(tensor->rows == 128 && tensor->columns == 128);
	cr_assert(tensor->block_rows == 1 && tensor->block_columns == 32);
}

Test(colibri_store, experts_of_deepseek_are_fp4_with_exponents)
{
	const char *vectors = getenv("CNRE_VECTORS");
	ColiExpertStore *store;
	struct truth *truth;
	ColiExpertView view;

	world_open(&world);
	(void)snprintf(world.model, sizeof world.model, "%s/deepseek-v4-tiny", vectors != NULL ? vectors : "../shared/vectors");
	if (access(world.model, R_OK) != 0) {
		world_close(&world);
		cr_skip("no vectors of DeepSeek V4 at %s (set CNRE_VECTORS)", world.model);
	}
	cr_assert_gt(world_start(&world, NULL), 0);
	(void)setenv("COLI_EXPERT_STORE", "cnre", 1);
	(void)setenv("COLI_CNRE_SOCKET", world.socket, 1);
	store = open_store();
	cr_assert_eq(truth_open(&truth, world.model), 0);
	for (int i = 0; i < 3 * 8; i++) {
		cr_assert_eq(v4_lookup(store, i / 8, i % 8, &view), 0);
		check_tensor(truth, &view, &view.gate, 1);
		check_tensor(truth, &view, &view.down, 2);
		check_tensor(truth, &view, &view.up, 3);
		v4_release(store, &view);
	}
	truth_close(truth);
	end(store);
}
