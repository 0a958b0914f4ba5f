/* SPDX-License-Identifier: Apache-2.0 */
/* The provider that engines without acquire and release call, against a real manager. */
#include "client/colibri/provider.h"

#include "tests/support/child.h"
#include "tests/support/truth.h"
#include "tests/support/world.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(colibri_provider, .timeout = 120);

static struct world world;
static char message[256];

static void begin(const char *const *options)
{
	(void)unsetenv("COLI_CACHE_POLICY");
	(void)setenv("COLI_CACHE", "cnre", 1);
	(void)setenv("COLI_CNRE_SOCKET", world.socket, 1);
	message[0] = '\0';
	cr_assert_gt(world_start(&world, options), 0);
}

static int try_open(struct cnre_colibri **ret_shim)
{
	struct cnre_colibri_setup setup = {.model = world.model, .name = "engine-of-a-test"};

	return cnre_colibri_open(ret_shim, &setup, message, sizeof message);
}

static struct cnre_colibri *open_shim(void)
{
	struct cnre_colibri *shim = NULL;
	int r = try_open(&shim);

	cr_assert_eq(r, 1, "%d: %s", r, message);
	return shim;
}

static const char *const small_pool[] = {"--ram", "256K", NULL};

/* The parts that a view points to, so that the reader of the test can compare them with the file. */
static struct cnre_expert parts_of(const struct cnre_colibri_view *view)
{
	const struct cnre_colibri_matrix *matrix[] = {&view->gate, &view->up, &view->down};
	struct cnre_expert expert = {.layer = view->layer, .expert = view->expert};

	for (int i = 0; i < 3; i++) {
		expert.part[i].data = matrix[i]->data;
		expert.part[i].bytes = matrix[i]->data_bytes;
		expert.part[i + CNRE_GATE_SCALE].data = matrix[i]->scales;
		expert.part[i + CNRE_GATE_SCALE].bytes = matrix[i]->scale_bytes;
	}
	return expert;
}

static void check_layer(struct cnre_colibri *shim, const struct truth *truth, int layer, int count)
{
	struct cnre_colibri_block *block = NULL;
	int id[CNRE_COLIBRI_BLOCK_MAX];

	for (int i = 0; i < count; i++)
		id[i] = count - 1 - i;
	cr_assert_eq(cnre_colibri_acquire(shim, layer, id, count, 1, &block), 0);
	for (int i = 0; i < count; i++) {
		struct cnre_colibri_view view;
		struct cnre_expert expert;

		cr_assert_eq(cnre_colibri_view(block, i, &view), 0);
		cr_assert_eq((int)view.expert, id[i], "order is the caller's");
		expert = parts_of(&view);
		cr_assert_eq(truth_compare(truth, &expert), 0, "layer %d expert %d", layer, id[i]);
		cr_expect_eq(view.gate.format, 1);
		cr_expect_eq(view.gate.rows, view.down.columns);
		cr_expect_eq(view.gate.data_bytes, (uint64_t)view.gate.rows * view.gate.columns);
	}
	cnre_colibri_release(block);
}

static const char *vectors(void)
{
	const char *directory = getenv("CNRE_VECTORS");

	return directory != NULL ? directory : "../shared/vectors";
}

Test(colibri_provider, views_of_a_real_engines_checkpoint_are_its_bytes)
{
	struct cnre_model_info info = {.size = sizeof info};
	struct cnre_colibri *shim;
	struct truth *truth;

	world_open(&world);
	(void)snprintf(world.model, sizeof world.model, "%s/olmoe-a", vectors());
	if (access(world.model, R_OK) != 0) {
		world_close(&world);
		cr_skip("no reference vectors in %s; CNRE_VECTORS names their directory", vectors());
	}
	begin(NULL);
	shim = open_shim();
	cr_assert_eq(cnre_model(cnre_colibri_client(shim), &info), 0);
	cr_assert_leq(info.expert_count, cnre_colibri_block_max(shim));
	cr_assert_eq(truth_open(&truth, world.model), 0);
	for (uint32_t layer = 0; layer < info.layer_count; layer++)
		check_layer(shim, truth, (int)layer, (int)info.expert_count);
	truth_close(truth);
	cnre_colibri_close(shim);
	cr_expect_eq(world_stat(&world, "leased_objects"), 0);
	cr_expect_eq(world_stat(&world, "clients"), 0);
	world_close(&world);
}

static void check_matrix(const struct truth *truth, const struct cnre_colibri_view *view, const struct cnre_colibri_matrix *matrix,
			 const char *name)
{
	struct truth_tensor file;
	char text[96];

	(void)snprintf(text, sizeof text, "model.layers.%u.mlp.experts.%u.%s_proj.weight", view->layer, view->expert, name);
	cr_assert(truth_tensor(truth, text, &file), "%s", text);
	cr_assert(matrix->data_bytes == file.bytes && memcmp(matrix->data, file.data, file.bytes) == 0, "%s", text);
	(void)strcat(text, ".qs");
	cr_assert(truth_tensor(truth, text, &file), "%s", text);
	cr_assert(matrix->scale_bytes == file.bytes && memcmp(matrix->scales, file.data, file.bytes) == 0, "%s", text);
	cr_assert_eq(matrix->format, 2, "int4 rows");
	cr_assert_eq(matrix->data_bytes, (uint64_t)matrix->rows * matrix->columns / 2);
}

Test(colibri_provider, views_of_glm_are_its_int4_rows)
{
	struct cnre_colibri_block *block;
	struct cnre_colibri_view view;
	struct cnre_colibri *shim;
	struct truth *truth;
	int id[16];

	world_open(&world);
	(void)snprintf(world.model, sizeof world.model, "%s/glm-tiny", vectors());
	if (access(world.model, R_OK) != 0) {
		world_close(&world);
		cr_skip("no vectors of GLM in %s; CNRE_VECTORS names their directory", vectors());
	}
	begin(NULL);
	shim = open_shim();
	cr_assert_eq(truth_open(&truth, world.model), 0);
	for (int i = 0; i < 16; i++)
		id[i] = i;
	cr_expect_eq(cnre_colibri_acquire(shim, 0, id, 1, 1, &block), -ENOENT, "a dense layer");
	for (int layer = 2; layer <= 5; layer++) {
		cr_assert_eq(cnre_colibri_acquire(shim, layer, id, 16, 1, &block), 0);
		for (int i = 0; i < 16; i++) {
			cr_assert_eq(cnre_colibri_view(block, i, &view), 0);
			check_matrix(truth, &view, &view.gate, "gate");
			check_matrix(truth, &view, &view.up, "up");
			check_matrix(truth, &view, &view.down, "down");
		}
		cnre_colibri_release(block);
	}
	truth_close(truth);
	cnre_colibri_close(shim);
	world_close(&world);
}

Test(colibri_provider, without_the_switch_nothing_is_attached)
{
	struct cnre_colibri *shim = (struct cnre_colibri *)&world;

	world_open(&world);
	world_generate(&world, NULL);
	begin(NULL);
	(void)setenv("COLI_CACHE", "builtin", 1);
	cr_expect_eq(try_open(&shim), 0);
	(void)unsetenv("COLI_CACHE");
	cr_expect_eq(try_open(&shim), 0);
	cr_expect_eq(shim, (struct cnre_colibri *)&world, "output is untouched");
	cr_expect_eq(world_stat(&world, "attaches"), 0);
	world_close(&world);
}

Test(colibri_provider, all_leases_of_a_block_end_with_it)
{
	struct cnre_colibri_block *block = NULL;
	struct cnre_colibri_view view, again;
	struct cnre_colibri *shim;
	const int id[] = {7, 2, 7, 0};

	world_open(&world);
	world_generate(&world, NULL);
	begin(NULL);
	shim = open_shim();
	cr_assert_eq(cnre_colibri_acquire(shim, 1, id, 4, 1, &block), 0);
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(cnre_colibri_view(block, i, &view), 0);
		cr_assert_eq(cnre_colibri_view(block, i, &again), 0, "the same once more");
		cr_expect_eq(view.down.data, again.down.data);
	}
	cr_expect_eq(world_stat(&world, "leased_objects"), 3);
	cnre_colibri_release(block);
	cr_expect_eq(world_stat(&world, "leased_objects"), 0);
	/* Of the next one only some is looked at. */
	cr_assert_eq(cnre_colibri_acquire(shim, 1, id, 4, 1, &block), 0);
	cr_assert_eq(cnre_colibri_view(block, 1, &view), 0);
	cr_expect(view.was_resident);
	cnre_colibri_release(block);
	cr_expect_eq(world_stat(&world, "leased_objects"), 0);
	cnre_colibri_release(NULL);
	cnre_colibri_close(shim);
	cnre_colibri_close(NULL);
	world_close(&world);
}

/* An engine that gives back twice must not have another thread's block in its hands. */
Test(colibri_provider, a_block_that_was_released_is_nobodys_until_it_is_acquired_again)
{
	struct cnre_colibri_block *block = NULL, *first = NULL, *second = NULL;
	struct cnre_colibri_view view = {.layer = 99};
	struct cnre_colibri *shim;
	const int id[] = {3};

	world_open(&world);
	world_generate(&world, NULL);
	begin(NULL);
	shim = open_shim();
	cr_assert_eq(cnre_colibri_acquire(shim, 1, id, 1, 1, &block), 0);
	cr_assert_eq(cnre_colibri_view(block, 0, &view), 0);
	cnre_colibri_release(block);
	cr_expect_eq(cnre_colibri_view(block, 0, &view), -EINVAL, "what it had may be another's by now");
	cnre_colibri_release(block);
	cr_assert_eq(cnre_colibri_acquire(shim, 1, id, 1, 1, &first), 0);
	cr_assert_eq(cnre_colibri_acquire(shim, 2, id, 1, 1, &second), 0);
	cr_expect_neq(first, second);
	cnre_colibri_release(first);
	cnre_colibri_release(second);
	cr_expect_eq(world_stat(&world, "leased_objects"), 0);
	cnre_colibri_close(shim);
	world_close(&world);
}

Test(colibri_provider, a_block_that_cannot_be_is_refused)
{
	struct cnre_colibri_block *block = (struct cnre_colibri_block *)&world;
	struct cnre_colibri_view view = {.layer = 99};
	int id[CNRE_COLIBRI_BLOCK_MAX + 1] = {0};
	struct cnre_colibri *shim;
	int most;

	world_open(&world);
	world_generate(&world, NULL);
	begin(small_pool);
	shim = open_shim();
	most = (int)cnre_colibri_block_max(shim);
	cr_assert_geq(most, 5);
	cr_assert_lt(most, 16, "a small pool grants less than a layer");
	for (int i = 0; i < 16; i++)
		id[i] = i;
	cr_expect_eq(cnre_colibri_acquire(shim, 0, id, most + 1, 1, &block), -ENOSPC);
	cr_expect_eq(cnre_colibri_acquire(shim, 0, id, CNRE_COLIBRI_BLOCK_MAX + 1, 1, &block), -E2BIG);
	cr_expect_eq(cnre_colibri_acquire(shim, 4, id, 1, 1, &block), -ENOENT);
	cr_expect_eq(cnre_colibri_acquire(shim, -1, id, 1, 1, &block), -ENOENT);
	cr_expect_eq(cnre_colibri_acquire(shim, 0, id, 0, 1, &block), -EINVAL);
	cr_expect_eq(cnre_colibri_acquire(shim, 0, id, 1, -1, &block), -EINVAL);
	id[0] = -1;
	cr_expect_eq(cnre_colibri_acquire(shim, 0, id, 1, 1, &block), -ENOENT);
	cr_expect_eq(block, (struct cnre_colibri_block *)&world, "output is untouched");
	id[0] = 0;
	cr_assert_eq(cnre_colibri_acquire(shim, 0, id, most, 1, &block), 0);
	cr_expect_eq(cnre_colibri_view(block, most, &view), -EINVAL);
	cr_expect_eq(cnre_colibri_view(block, -1, &view), -EINVAL);
	cr_expect_eq(view.layer, 99);
	cnre_colibri_release(block);
	cnre_colibri_close(shim);
	world_close(&world);
}

/* Blocks of the same size are made once. */
Test(colibri_provider, many_blocks_in_a_small_pool_are_all_served)
{
	struct cnre_colibri *shim;
	struct cnre_colibri_stats stats;
	struct truth *truth;
	int most;

	world_open(&world);
	world_generate(&world, NULL);
	begin(small_pool);
	shim = open_shim();
	most = (int)cnre_colibri_block_max(shim);
	cr_assert_eq(truth_open(&truth, world.model), 0);
	for (int i = 0; i < 40; i++)
		check_layer(shim, truth, i % 4, most);
	truth_close(truth);
	cr_assert_eq(cnre_colibri_stats(shim, &stats), 0);
	cr_expect_eq(stats.requests, 40u * (unsigned)most);
	cr_expect_eq(stats.hits + stats.misses, stats.requests);
	cr_expect_gt(stats.bytes_read, 0);
	cnre_colibri_close(shim);
	world_close(&world);
}

Test(colibri_provider, prefetch_counts_what_was_absent)
{
	struct cnre_colibri *shim;
	const int id[] = {1, 2, 3}, wrong[] = {-1};

	world_open(&world);
	world_generate(&world, NULL);
	begin(NULL);
	shim = open_shim();
	cr_expect_eq(cnre_colibri_prefetch(shim, 2, id, 3), 3);
	cr_expect_eq(cnre_colibri_prefetch(shim, 9, id, 3), 0);
	cr_expect_eq(cnre_colibri_prefetch(shim, 2, wrong, 1), 0);
	cnre_colibri_close(shim);
	world_close(&world);
}

/* ---- the switches ---- */

static int open_with_policy(const char *policy)
{
	struct cnre_colibri *shim = NULL;
	int r;

	(void)setenv("COLI_CACHE_POLICY", policy, 1);
	r = try_open(&shim);
	cnre_colibri_close(shim);
	return r;
}

static int has_policy(const char *name)
{
	char wanted[64];

	(void)snprintf(wanted, sizeof wanted, "\"policy\":\"%s\"", name);
	return strstr(world_status_text(&world), wanted) != NULL;
}

Test(colibri_provider, policy_is_refused_with_the_reason_where_the_administrator_says_nothing)
{
	world_open(&world);
	world_generate(&world, NULL);
	begin(NULL);
	cr_expect_eq(open_with_policy("lru"), -EPERM);
	cr_expect_not_null(strstr(message, "COLI_CACHE_POLICY lru: the manager's administrator forbids"), "%s", message);
	cr_expect(has_policy("cost"));
	cr_expect(world_log_has(&world, "--client-policy refuses"));
	cr_expect_eq(world_stat(&world, "clients"), 0, "nothing stays attached");
	cr_expect_eq(open_with_policy("cost"), 1, "what is in force anyhow is no change: %s", message);
	world_close(&world);
}

/* Whether a change right after another one is refused and changes nothing: it may be late, where the machine is busy. */
static int change_is_refused_for_now(const char *now)
{
	for (int i = 0; i < 20; i++) {
		const char *other = strcmp(now, "lru") == 0 ? "slru" : "lru";

		if (open_with_policy(other) == -EAGAIN)
			return has_policy(now);
		now = other;
	}
	return 0;
}

Test(colibri_provider, policy_is_followed_where_clients_of_this_user_may_choose)
{
	const char *const options[] = {"--client-policy", "own", NULL};

	world_open(&world);
	world_generate(&world, NULL);
	begin(options);
	cr_expect_eq(open_with_policy("lru"), 1, "%s", message);
	cr_expect(has_policy("lru"));
	cr_expect_eq(open_with_policy("lru"), 1, "a second engine with the same wish: %s", message);
	cr_expect(change_is_refused_for_now("lru"), "not twice in a second");
	cr_expect_lt(open_with_policy("no-such-policy"), 0);
	world_close(&world);
}

Test(colibri_provider, unknown_policy_is_said_to_be_unknown)
{
	const char *const options[] = {"--client-policy", "allow", NULL};

	world_open(&world);
	world_generate(&world, NULL);
	begin(options);
	cr_expect_eq(open_with_policy("no-such-policy"), -ENOENT);
	cr_expect_not_null(strstr(message, "no such policy"), "%s", message);
	cr_expect_eq(open_with_policy("a-name-that-is-longer-than-any-policy-has"), -ENOENT);
	cr_expect(has_policy("cost"));
	world_close(&world);
}

static int ask_as_another_user(void *argument)
{
	struct cnre_colibri *shim = NULL;

	(void)argument;
	if (setgid(65534) != 0 || setuid(65534) != 0)
		return 77;
	(void)setenv("COLI_CACHE_POLICY", "lru", 1);
	return try_open(&shim) == -EPERM ? 0 : 1;
}

Test(colibri_provider, policy_is_not_another_users_to_choose)
{
	const char *const options[] = {"--client-policy", "own", "--socket-mode", "0666", NULL};
	int r;

	world_open(&world);
	world_generate(&world, NULL);
	begin(options);
	r = child_run(ask_as_another_user, NULL);
	world_close(&world);
	if (r == 77)
		cr_skip("needs root, to become another user");
	cr_expect_eq(r, 0);
}

Test(colibri_provider, absent_manager_is_said_to_be_absent)
{
	struct cnre_colibri *shim = NULL;

	world_open(&world);
	world_generate(&world, NULL);
	(void)setenv("COLI_CACHE", "cnre", 1);
	(void)setenv("COLI_CNRE_SOCKET", "none", 1);
	cr_expect_eq(try_open(&shim), -ECONNREFUSED);
	cr_expect_not_null(strstr(message, "no manager"), "%s", message);
	cr_expect_null(shim);
	world_close(&world);
}

Test(colibri_provider, experts_that_no_engine_computes_with_are_refused_at_open)
{
	const char *const options[] = {"--expert-format", "bf16", NULL};
	struct cnre_colibri *shim = NULL;

	world_open(&world);
	world_generate(&world, options);
	begin(NULL);
	cr_expect_eq(try_open(&shim), -ENOTSUP);
	cr_expect_not_null(strstr(message, "format"), "%s", message);
	cr_expect_eq(world_stat(&world, "clients"), 0);
	world_close(&world);
}
