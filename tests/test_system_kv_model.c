/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long random run against a real manager. One process calls everything there is and keeps a model of what must come of
 * it, to the token; other processes publish the same, pin, and are killed; the manager is killed under its keeper. The
 * seed is printed, and set by CNRE_TEST_SEED.
 */
#include "tests/support/child.h"
#include "tests/support/kv.h"
#include "tests/support/world.h"
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

TestSuite(system_kv_model, .timeout = 600);

enum {
	STEPS = 10000,
	CHECK_EVERY = 1000,
	KILL_EVERY = 2300,
	CONVERSATIONS = 7,
	BLOCKS = 8, /* whole ones of a conversation; then a part */
	TOKENS = BLOCKS * (int)KV_TEST_BLOCK + 7,
	IDENTITIES = 2,
	CHAINS = 12,
	HELPERS = 3,
	INSTANCES_MAX = 20000,
};

#define NO_EXPERTS 1u
#define WAIT_NS 20000000000LL
#define COMPUTE_NS 1000000u

static unsigned random_state;

static unsigned draw(unsigned below)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % below;
}

static unsigned seed_of_run(void)
{
	const char *given = getenv("CNRE_TEST_SEED");
	unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);

	(void)fprintf(stderr, "CNRE_TEST_SEED=%u\n", seed);
	return seed;
}

/* ---- conversations: a small tree; where they part is inside a block, and at its end ---- */

static const size_t shared[CONVERSATIONS] = {0, 37, 64, 70, 0, 5, 16};
static int32_t tokens_of[CONVERSATIONS][TOKENS];

static void make_conversations(void)
{
	for (unsigned i = 0; i < CONVERSATIONS; i++)
		kv_test_tokens(i, shared[i], tokens_of[i], TOKENS);
}

static struct cnre_kv *open_identity(struct cnre *client, int number)
{
	struct cnre_kv_identity identity = kv_test_identity();
	struct cnre_kv *kv = NULL;

	identity.salt = number == 0 ? NULL : "another";
	return cnre_kv_open(client, NULL, &identity, &kv) == 0 ? kv : NULL;
}

/* ---- helpers: other processes that do what they are told ---- */

enum order { PUBLISH, PIN };

struct command {
	enum order order;
	int identity, conversation;
	size_t count;
};

struct helper {
	const struct world *world;
	int socket, other_end;
	pid_t pid;
	int pinned_identity; /* -1: it pins nothing */
	int pinned_conversation;
	size_t pinned_blocks;
	unsigned pin[BLOCKS]; /* instances */
};

static int obey(struct cnre_kv *const *kv, const struct command *command, struct cnre_kv_chain **pinned)
{
	const int32_t *tokens = tokens_of[command->conversation];

	if (command->order == PUBLISH)
		return kv_test_publish(kv[command->identity], tokens, command->count);
	cnre_kv_release(*pinned);
	*pinned = NULL;
	return cnre_kv_match(kv[command->identity], tokens, command->count, NULL, 0, pinned);
}

static int be_helper(void *context)
{
	const struct helper *helper = context;
	struct cnre_options options = {.size = sizeof options,
				       .socket = helper->world->socket,
				       .reserve_bytes = NO_EXPERTS,
				       .timeout_ns = WAIT_NS};
	struct cnre_kv_chain *pinned = NULL;
	struct cnre_kv *kv[IDENTITIES];
	struct command command;
	struct cnre *client;
	int r = 0;

	if (cnre_attach(&client, helper->world->model, &options) < 0)
		return 1;
	for (int i = 0; i < IDENTITIES; i++)
		kv[i] = open_identity(client, i);
	if (kv[0] == NULL || kv[1] == NULL || write(helper->other_end, &r, sizeof r) != sizeof r)
		return 2;
	while (read(helper->other_end, &command, sizeof command) == sizeof command) {
		r = obey(kv, &command, &pinned);
		if (write(helper->other_end, &r, sizeof r) != sizeof r)
			return 3;
	}
	return 0;
}

static int answer_of(const struct helper *helper)
{
	int r = -EPIPE;

	cr_assert_eq(read(helper->socket, &r, sizeof r), sizeof r, "a helper has ended");
	return r;
}

static void start_helper(struct helper *helper, const struct world *world)
{
	int ends[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	*helper = (struct helper){.world = world, .socket = ends[0], .other_end = ends[1], .pinned_identity = -1};
	helper->pid = child_start(be_helper, helper);
	(void)close(ends[1]);
	cr_assert_eq(answer_of(helper), 0);
}

static void kill_helper(struct helper *helper)
{
	(void)kill(helper->pid, SIGKILL);
	(void)child_wait(helper->pid);
	(void)close(helper->socket);
	helper->pinned_identity = -1;
	helper->pinned_blocks = 0;
}

/* ---- the model ---- */

struct instance {                   /* of a block: published again after it was forgotten, it is another one */
	int identity, conversation; /* one of those that it is of */
	uint32_t start, end;
	int is_there; /* can be found */
};

struct chain {
	struct cnre_kv_chain *chain; /* NULL: none */
	int identity, conversation, is_pinned;
	size_t covered;
	size_t item_count;
	unsigned item[BLOCKS + 1];
	size_t base;
};

struct run {
	struct world world;
	struct cnre *client;
	struct cnre_kv *kv[IDENTITIES];
	struct helper helper[HELPERS];
	struct instance instance[INSTANCES_MAX];
	unsigned instance_count;
	struct chain chain[CHAINS];
	uint64_t handed_over; /* commits since this manager began, that it has answered or will */
	unsigned matches, cut, commits, invalidated, restarts, deaths;
};

static struct run run;

static int is_same(const struct instance *instance, int identity, const int32_t *tokens, size_t start, size_t end)
{
	return instance->identity == identity && instance->start == start && instance->end == end &&
	       memcmp(tokens_of[instance->conversation], tokens, end * sizeof *tokens) == 0;
}

/* The block that ends there, or -1. */
static int find(int identity, const int32_t *tokens, size_t start, size_t end)
{
	for (unsigned i = run.instance_count; i-- > 0;)
		if (run.instance[i].is_there && is_same(&run.instance[i], identity, tokens, start, end))
			return (int)i;
	return -1;
}

static size_t common(const struct instance *instance, const int32_t *tokens, size_t count)
{
	const int32_t *own = tokens_of[instance->conversation];
	size_t at = instance->start;

	if (memcmp(own, tokens, instance->start * sizeof *own) != 0)
		return 0;
	while (at < instance->end && at < count && own[at] == tokens[at])
		at++;
	return at - instance->start;
}

/* Whether that very block is stored: asked as an engine does. */
static int is_stored(const struct instance *block)
{
	const int32_t *tokens = tokens_of[block->conversation];
	struct cnre_kv_chain *chain;
	void *buffer;
	int r = cnre_kv_match(run.kv[block->identity], tokens, block->start, NULL, 0, &chain);

	cr_assert_geq(r, 0);
	r = cnre_kv_stage(chain, tokens + block->start, block->end - block->start, NULL, 0, KV_TEST_BYTES, &buffer);
	cnre_kv_release(chain);
	return r == 1;
}

/* What was handed over comes, and what was replaced goes: soon. */
static void await(const struct instance *block, int wanted)
{
	struct timespec pause = {.tv_nsec = 200000};

	for (int i = 0; i < 100000 && is_stored(block) != wanted; i++)
		(void)nanosleep(&pause, NULL);
	cr_assert_eq(is_stored(block), wanted, "%u..%u of %d", block->start, block->end, block->conversation);
}

static void insert(int identity, int conversation, size_t start, size_t end)
{
	const struct instance new = {.identity = identity,
				     .conversation = conversation,
				     .start = (uint32_t)start,
				     .end = (uint32_t)end,
				     .is_there = 1};
	const int32_t *tokens = tokens_of[conversation];

	if (find(identity, tokens, start, end) >= 0)
		return;
	await(&new, 1);
	for (unsigned i = 0; i < run.instance_count; i++) {
		struct instance *other = &run.instance[i];

		/* A part that is the beginning of this one is of no more use. */
		if (!other->is_there || other->identity != identity || other->start != start || other->end >= end ||
		    memcmp(tokens_of[other->conversation], tokens, other->end * sizeof *tokens) != 0)
			continue;
		other->is_there = 0;
		await(other, 0);
	}
	cr_assert_lt(run.instance_count, INSTANCES_MAX);
	run.instance[run.instance_count++] = new;
}

static size_t whole_of(int identity, const int32_t *tokens, size_t count)
{
	size_t base = 0;

	while (base + KV_TEST_BLOCK <= count && find(identity, tokens, base, base + KV_TEST_BLOCK) >= 0)
		base += KV_TEST_BLOCK;
	return base;
}

/* Tokens of the block behind the whole ones that can be used. */
static size_t part_of(int identity, const int32_t *tokens, size_t base, size_t count)
{
	size_t best = 0;

	for (unsigned i = 0; i < run.instance_count; i++) {
		const struct instance *instance = &run.instance[i];
		size_t part;

		if (!instance->is_there || instance->identity != identity || instance->start != base)
			continue;
		part = common(instance, tokens, count);
		best = part > best ? part : best;
	}
	return best;
}

static unsigned count_there(int identity)
{
	unsigned count = 0;

	for (unsigned i = 0; i < run.instance_count; i++)
		count += run.instance[i].is_there && (identity < 0 || run.instance[i].identity == identity);
	return count;
}

static unsigned count_pinned(void)
{
	static char is_pinned[INSTANCES_MAX];
	unsigned count = 0;

	memset(is_pinned, 0, sizeof is_pinned);
	for (int i = 0; i < CHAINS; i++)
		for (size_t k = 0; run.chain[i].chain != NULL && run.chain[i].is_pinned && k < run.chain[i].item_count;
		     k++)
			is_pinned[run.chain[i].item[k]] = 1;
	for (int i = 0; i < HELPERS; i++)
		for (size_t k = 0; k < run.helper[i].pinned_blocks; k++)
			is_pinned[run.helper[i].pin[k]] = 1;
	for (unsigned i = 0; i < run.instance_count; i++)
		count += is_pinned[i] != 0;
	return count;
}

/* Of several blocks that are as good it is the one whose bytes these are: the newest of them. */
static int identify(int identity, const void *payload, const int32_t *tokens, size_t start, size_t part)
{
	for (unsigned i = run.instance_count; i-- > 0;) {
		const struct instance *instance = &run.instance[i];

		if (instance->identity == identity && instance->start == start &&
		    common(instance, tokens, start + part) >= part &&
		    kv_test_check(payload, KV_TEST_BYTES, tokens_of[instance->conversation], instance->end) == 0)
			return (int)i;
	}
	return -1;
}

/* ---- what the manager says ---- */

static json_t *report(void)
{
	static char output[1 << 17];
	const char *arguments[] = {"--socket", run.world.socket, "kv", "--json", NULL};
	json_t *report;

	cr_assert_eq(world_run("cnrectl", arguments, output, sizeof output), 0, "%s", output);
	report = json_loads(output, 0, NULL);
	cr_assert_not_null(report, "%.200s", output);
	return report;
}

static uint64_t number_of(const char *field)
{
	json_t *whole = report();
	uint64_t value = 0;

	for (size_t i = 0; i < json_array_size(json_object_get(whole, "namespaces")); i++)
		value += (uint64_t)json_integer_value(
			json_object_get(json_array_get(json_object_get(whole, "namespaces"), i), field));
	json_decref(whole);
	return value;
}

static int is_settled(void *context)
{
	(void)context;
	return number_of("published") + number_of("present") + number_of("publish_failed") >= run.handed_over;
}

static int is_as_modelled(void *context)
{
	(void)context;
	return number_of("blocks") == count_there(-1) && number_of("pinned_blocks") == count_pinned();
}

static void compare(unsigned step)
{
	(void)world_wait_until(is_as_modelled, NULL, 20);
	cr_assert_eq(number_of("blocks"), count_there(-1), "step %u: blocks", step);
	cr_assert_eq(number_of("pinned_blocks"), count_pinned(), "step %u: pins", step);
	cr_assert_eq(number_of("publish_failed"), 0, "step %u", step);
	cr_assert_eq(number_of("evictions"), 0, "step %u: the model knows of none", step);
}

/* ---- steps ---- */

static void release(struct chain *chain)
{
	cnre_kv_release(chain->chain);
	*chain = (struct chain){0};
}

static void match(struct chain *chain, int identity, int conversation, size_t count)
{
	const int32_t *tokens = tokens_of[conversation];
	size_t base = whole_of(identity, tokens, count), part = part_of(identity, tokens, base, count);
	const void *data;
	uint64_t bytes;
	int covered;

	release(chain);
	covered = cnre_kv_match(run.kv[identity], tokens, count, NULL, 0, &chain->chain);
	cr_assert_eq(covered, (int)(base + part), "conversation %d, %zu tokens: %d, not %zu + %zu", conversation, count,
		     covered, base, part);
	chain->identity = identity;
	chain->conversation = conversation;
	chain->covered = base + part;
	chain->base = base;
	chain->is_pinned = 1;
	for (size_t at = 0; at < base; at += KV_TEST_BLOCK)
		chain->item[chain->item_count++] = (unsigned)find(identity, tokens, at, at + KV_TEST_BLOCK);
	if (part > 0) {
		int found;

		cr_assert_eq(cnre_kv_block(chain->chain, chain->item_count, WAIT_NS, &data, &bytes), (int)part);
		found = identify(identity, data, tokens, base, part);
		cr_assert_geq(found, 0, "the cut block holds no block's bytes");
		chain->item[chain->item_count++] = (unsigned)found;
		run.cut++;
	}
	run.matches++;
}

static void read_block(const struct chain *chain, size_t index)
{
	const struct instance *instance;
	size_t tokens = chain->covered - index * KV_TEST_BLOCK;
	const void *data;
	uint64_t bytes;
	int r = cnre_kv_block(chain->chain, index, WAIT_NS, &data, &bytes);

	if (index >= chain->item_count) {
		cr_assert_eq(r, 0, "past the end: %d", r);
		return;
	}
	if (!chain->is_pinned) {
		cr_assert_eq(r, -ESTALE);
		return;
	}
	instance = &run.instance[chain->item[index]];
	cr_assert_eq(r, (int)(tokens < KV_TEST_BLOCK ? tokens : KV_TEST_BLOCK));
	cr_assert_eq(bytes, KV_TEST_BYTES);
	cr_assert_eq(kv_test_check(data, bytes, tokens_of[instance->conversation], instance->end), 0, "block %zu",
		     index);
}

/* The next block of a chain, whole or in part; commits it, or only looks. */
static void extend(struct chain *chain, size_t count, int commits)
{
	const int32_t *tokens = tokens_of[chain->conversation];
	size_t start = chain->base, end = start + count;
	int is_there, has_tip;
	void *buffer;
	int r;

	if (end > (size_t)TOKENS)
		return;
	is_there = find(chain->identity, tokens, start, end) >= 0;
	has_tip = start == 0 || find(chain->identity, tokens, start - KV_TEST_BLOCK, start) >= 0;
	r = cnre_kv_stage(chain->chain, tokens + start, count, NULL, 0, KV_TEST_BYTES, &buffer);
	cr_assert_eq(r,
		     is_there  ? 1
		     : has_tip ? 0
			       : -ESTALE,
		     "stage %zu..+%zu of %d: %d", start, count, chain->conversation, r);
	if (r == 0 && commits) {
		kv_test_fill(buffer, KV_TEST_BYTES, tokens, end);
		cr_assert_eq(cnre_kv_commit(chain->chain, COMPUTE_NS, 0), 0);
		insert(chain->identity, chain->conversation, start, end);
		run.handed_over++;
		run.commits++;
	}
	if ((r == 1 || (r == 0 && commits)) && count == KV_TEST_BLOCK)
		chain->base = end;
}

static void invalidate(int identity)
{
	unsigned there = count_there(identity);
	int dropped;

	dropped = cnre_kv_invalidate(run.kv[identity]);
	cr_assert_eq(dropped, (int)there, "dropped %d, not %u", dropped, there);
	for (unsigned i = 0; i < run.instance_count; i++)
		run.instance[i].is_there &= run.instance[i].identity != identity;
	run.invalidated += there;
}

static void insert_all(int identity, int conversation, size_t count)
{
	for (size_t at = 0; at < count; at += KV_TEST_BLOCK)
		insert(identity, conversation, at, at + KV_TEST_BLOCK < count ? at + KV_TEST_BLOCK : count);
}

/* All helpers and we, at once. Who comes second has computed for nothing, and there is one set of blocks. */
static void publish_together(int identity, int conversation, size_t count)
{
	struct command command = {.order = PUBLISH, .identity = identity, .conversation = conversation, .count = count};
	int stored;

	for (int i = 0; i < HELPERS; i++)
		cr_assert_eq(write(run.helper[i].socket, &command, sizeof command), sizeof command);
	stored = kv_test_publish(run.kv[identity], tokens_of[conversation], count);
	cr_assert_geq(stored, 0, "%s", strerror(-stored));
	run.handed_over += (uint64_t)stored;
	for (int i = 0; i < HELPERS; i++) {
		stored = answer_of(&run.helper[i]);
		cr_assert_geq(stored, 0, "helper %d: %s", i, strerror(-stored));
		run.handed_over += (uint64_t)stored;
	}
	cr_assert(world_wait_until(is_settled, NULL, 20), "%llu were handed over", (unsigned long long)run.handed_over);
	insert_all(identity, conversation, count);
}

/* Whole blocks only, so that it is known which. */
static void pin_by_helper(struct helper *helper, int identity, int conversation)
{
	const int32_t *tokens = tokens_of[conversation];
	size_t base = whole_of(identity, tokens, TOKENS);
	struct command command = {.order = PIN, .identity = identity, .conversation = conversation, .count = base};

	cr_assert_eq(write(helper->socket, &command, sizeof command), sizeof command);
	cr_assert_eq(answer_of(helper), (int)base);
	helper->pinned_blocks = base / KV_TEST_BLOCK;
	for (size_t i = 0; i < helper->pinned_blocks; i++)
		helper->pin[i] = (unsigned)find(identity, tokens, i * KV_TEST_BLOCK, (i + 1) * KV_TEST_BLOCK);
}

/* With a conversation on its way: what was handed over is stored by whoever comes next. */
static void kill_manager(int identity, int conversation)
{
	const int32_t *tokens = tokens_of[conversation];
	int handed = kv_test_commit(run.kv[identity], tokens, TOKENS);

	cr_assert_geq(handed, 0);
	world_kill_manager(&run.world);
	insert_all(identity, conversation, TOKENS);
	run.handed_over = number_of("published") + number_of("present");
	run.restarts++;
}

static size_t draw_part(void)
{
	static const size_t parts[] = {5, 11, KV_TEST_BLOCK, KV_TEST_BLOCK, KV_TEST_BLOCK};

	return parts[draw(sizeof parts / sizeof parts[0])];
}

static void step(void)
{
	struct chain *chain = &run.chain[draw(CHAINS)];
	struct helper *helper = &run.helper[draw(HELPERS)];
	int identity = (int)draw(IDENTITIES), conversation = (int)draw(CONVERSATIONS);
	unsigned what = draw(1000);

	if (chain->chain == NULL || what < 250) {
		match(chain, identity, conversation, draw(TOKENS + 1));
	} else if (what < 500) {
		read_block(chain, draw(BLOCKS + 2));
	} else if (what < 850) {
		extend(chain, draw_part(), draw(4) != 0);
	} else if (what < 900) {
		cr_assert_eq(cnre_kv_unpin(chain->chain), 0);
		chain->is_pinned = 0;
	} else if (what < 970) {
		release(chain);
	} else if (what < 980) {
		pin_by_helper(helper, identity, conversation);
	} else if (what < 985) {
		kill_helper(helper);
		start_helper(helper, &run.world);
		run.deaths++;
	} else if (what < 993) {
		publish_together(identity, conversation, draw(TOKENS + 1));
	} else if (what < 996) {
		invalidate(identity);
	}
}

static void read_everything(void)
{
	for (unsigned i = 0; i < run.instance_count; i++) {
		const struct instance *instance = &run.instance[i];
		struct chain chain = {0};

		if (!instance->is_there)
			continue;
		match(&chain, instance->identity, instance->conversation, instance->end);
		for (size_t k = 0; k <= chain.item_count; k++)
			read_block(&chain, k);
		release(&chain);
	}
}

Test(system_kv_model, ten_thousand_random_steps_do_what_the_model_says)
{
	unsigned seed = seed_of_run();

	random_state = seed;
	make_conversations();
	world_open(&run.world);
	world_generate(&run.world, NULL);
	cr_assert_gt(world_start(&run.world, (const char *const[]){"--kv-ram", "128M", "--keeper", "auto", NULL}), 0);
	for (int i = 0; i < HELPERS; i++)
		start_helper(&run.helper[i], &run.world);
	run.client = world_attach(&run.world, NO_EXPERTS);
	for (int i = 0; i < IDENTITIES; i++)
		run.kv[i] = open_identity(run.client, i);
	for (unsigned i = 1; i <= STEPS; i++) {
		step();
		if (i % KILL_EVERY == 0)
			kill_manager((int)draw(IDENTITIES), (int)draw(CONVERSATIONS));
		if (i % CHECK_EVERY == 0)
			compare(i);
	}
	for (int i = 0; i < CHAINS; i++)
		release(&run.chain[i]);
	for (int i = 0; i < HELPERS; i++)
		kill_helper(&run.helper[i]);
	compare(STEPS);
	cr_assert_eq(count_pinned(), 0);
	read_everything();
	compare(STEPS);
	(void)fprintf(stderr, "%u matches, %u of them cut, %u commits, %u invalidated, %u restarts, %u deaths\n",
		      run.matches, run.cut, run.commits, run.invalidated, run.restarts, run.deaths);
	for (int i = 0; i < IDENTITIES; i++)
		cnre_kv_close(run.kv[i]);
	cnre_detach(run.client);
	world_close(&run.world);
}

/* ---- too little memory: what is there is not known, only that it is right ---- */

enum { ROUNDS = 600, EATERS = 3, MANY = 20, LONG = 12 * (int)KV_TEST_BLOCK };

struct eater {
	const struct world *world;
	unsigned seed;
};

/* 0, 1 wrong bytes, 2 an error that is none of too little memory or of a death. */
static int read_some(struct cnre_kv *kv, const int32_t *tokens, size_t count)
{
	struct cnre_kv_chain *chain;
	const void *data;
	uint64_t bytes;
	int matched = cnre_kv_match(kv, tokens, count, NULL, 0, &chain), r, bad = 0;

	if (matched < 0)
		return 2;
	for (size_t i = 0; (r = cnre_kv_block(chain, i, WAIT_NS, &data, &bytes)) != 0 && bad == 0; i++) {
		if (r < 0)
			bad = r == -ENOSPC || r == -EIO || r == -ESTALE ? 0 : 2;
		else if (r == KV_TEST_BLOCK)
			bad = kv_test_check(data, bytes, tokens, (i + 1) * KV_TEST_BLOCK) != 0;
	}
	cnre_kv_release(chain);
	return bad;
}

static int be_eater(void *context)
{
	const struct eater *eater = context;
	struct cnre_options options = {.size = sizeof options,
				       .socket = eater->world->socket,
				       .reserve_bytes = NO_EXPERTS,
				       .timeout_ns = WAIT_NS};
	struct cnre *client;
	struct cnre_kv *kv;
	int32_t tokens[LONG];

	random_state = eater->seed;
	if (cnre_attach(&client, eater->world->model, &options) < 0)
		return 3;
	kv = open_identity(client, 0);
	for (unsigned i = 0; i < ROUNDS && kv != NULL; i++) {
		size_t count = 1 + draw(LONG);
		int r, bad;

		kv_test_tokens(draw(MANY), 40, tokens, LONG);
		bad = read_some(kv, tokens, count);
		if (bad != 0)
			return bad;
		r = kv_test_commit(kv, tokens, count);
		if (r < 0 && r != -ESTALE && r != -ENOSPC)
			return 4;
	}
	cnre_kv_close(kv);
	cnre_detach(client);
	return kv == NULL ? 5 : 0;
}

static int is_quiet(void *context)
{
	(void)context;
	return number_of("pinned_blocks") == 0 && number_of("forgotten_blocks") == 0 && number_of("clients") == 0;
}

static void eat(const char *const *options)
{
	struct eater eater[EATERS + 1];
	pid_t child[EATERS + 1];

	random_state = seed_of_run();
	world_open(&run.world);
	world_generate(&run.world, NULL);
	cr_assert_gt(world_start(&run.world, options), 0);
	for (int i = 0; i <= EATERS; i++) {
		eater[i] = (struct eater){.world = &run.world, .seed = draw(1u << 20)};
		child[i] = child_start(be_eater, &eater[i]);
	}
	for (int i = 0; i < 5; i++)
		cr_assert_leq(number_of("resident_bytes"), 4u << 20);
	(void)kill(child[EATERS], SIGKILL);
	(void)child_wait(child[EATERS]);
	world_kill_manager(&run.world);
	for (int i = 0; i < EATERS; i++) {
		int end = child_wait(child[i]);

		cr_assert_eq(end, 0, "%d", end);
	}
	cr_assert_leq(number_of("resident_bytes"), 4u << 20);
	cr_assert_leq(number_of("pool_bytes"), 4u << 20);
	cr_assert(world_wait_until(is_quiet, NULL, 20));
	world_close(&run.world);
}

/* 4 MiB are 102 blocks; the conversations have 200. */
Test(system_kv_model, too_little_memory_gives_less_and_never_wrong_bytes)
{
	eat((const char *const[]){"--kv-ram", "4M", "--keeper", "auto", NULL});
}

Test(system_kv_model, too_little_memory_with_files_gives_no_wrong_bytes_either)
{
	char folder[160];

	(void)snprintf(folder, sizeof folder, "%s/cnre-kv-%d", getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/var/tmp",
		       getpid());
	eat((const char *const[]){"--kv-ram", "4M", "--keeper", "auto", "--kv-dir", folder, NULL});
	cr_assert_eq(world_run("/bin/rm", (const char *const[]){"-rf", folder, NULL}, NULL, 0), 0);
}
