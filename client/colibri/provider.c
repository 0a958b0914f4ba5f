/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching, and blocks of experts, for engines that have no acquire and release of their own; see provider.h. A block is
 * a batch of libcnre that keeps what was taken from it until its end, because these engines use an expert in several
 * places and give all back at one. Blocks are kept for the next, so that a steady stream of them allocates nothing.
 */
#include "client/colibri/provider.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPARE_BLOCKS_MAX 16u
#define WAIT_FOR_EVER (-1)

struct cnre_colibri {
	struct cnre *client;
	uint32_t block_max;
	pthread_mutex_t lock;             /* the list of spare blocks */
	struct cnre_colibri_block *spare;
	uint32_t spare_count;
};

struct cnre_colibri_block {
	struct cnre_colibri *shim;
	struct cnre_batch *batch;
	struct cnre_colibri_block *next;
	uint32_t count;
	unsigned char is_taken[CNRE_COLIBRI_BLOCK_MAX];
	struct cnre_expert expert[CNRE_COLIBRI_BLOCK_MAX];
};

const char *cnre_colibri_explain(int error)
{
	switch (error) {
	case -ENOENT:
		return "no such model, layer or expert there: is the manager's --model this directory?";
	case -EACCES:
		return "the manager does not serve this user: join its group, or name another in COLI_CNRE_SOCKET";
	case -ENOTSUP:
		return "a family or a format of experts that is not known here: leave COLI_CACHE=cnre out";
	case -ENOSPC:
		return "no room for what this engine may hold at once: raise the manager's --ram, or end another engine";
	case -ESTALE:
		return "the manager serves another revision of this model: use the same files, or restart it; with shards in several "
		       "directories set CNRE_DIRS as its --dir";
	case -EPROTO:
		return "libcnre and the manager are of different releases: install both of one";
	case -EBUSY:
		return "this process has the model attached already";
	case -ECONNREFUSED:
		return "no manager, and none could be started: start cnre-managerd, or read the log beside its socket";
	case -EPIPE:
		return "the manager is gone: start it and this engine again";
	case -EIO:
		return "the drive does not give the expert: see the manager's log";
	case -ECHILD:
		return "this is a forked child: open anew in it";
	default:
		return strerror(error < 0 ? -error : error);
	}
}

/* ---- opening ---- */

static const char *explain_policy(int error)
{
	switch (error) {
	case -EPERM:
		return "the manager's administrator forbids clients to choose (cnre-managerd --client-policy): leave it out, "
		       "or have it set with cnrectl policy";
	case -ENOENT:
		return "no such policy: cnre-managerd(8) lists them";
	case -EINVAL:
		return "it does not go with the manager's --pool";
	case -EAGAIN:
		return "another engine chose another one just now: give all the same";
	default:
		return cnre_colibri_explain(error);
	}
}

static int is_wanted(const struct cnre_colibri_setup *setup)
{
	const char *cache = getenv("COLI_CACHE");

	return setup->is_chosen || (cache != NULL && strcmp(cache, "cnre") == 0);
}

static const char *switch_or_null(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && value[0] != '\0' ? value : NULL;
}

static int attach(struct cnre_colibri *shim, const struct cnre_colibri_setup *setup, uint64_t reserve_bytes)
{
	struct cnre_options options = {
		.size = sizeof options,
		.socket = switch_or_null("COLI_CNRE_SOCKET"),
		.name = setup->name,
		.reserve_bytes = reserve_bytes,
		.timeout_ns = WAIT_FOR_EVER,
		.private_bytes = setup->private_bytes,
	};

	return cnre_attach(&shim->client, setup->model, &options);
}

/*
 * Elastic at first: a share of what is free, so that in a small pool the next engine fits, too. Where that is more than
 * this engine can use, exactly what it can; how large an expert is says only the manager.
 */
static int attach_for(struct cnre_colibri *shim, const struct cnre_colibri_setup *setup)
{
	struct cnre_model_info info = {.size = sizeof info};
	int r = attach(shim, setup, 0);

	if (r < 0 || setup->lease_count == 0)
		return r;
	(void)cnre_model(shim->client, &info); /* attached, and not in a child */
	if (info.reserve_objects <= setup->lease_count)
		return 0;
	cnre_detach(shim->client);
	r = attach(shim, setup, setup->lease_count * info.expert_bytes_max);
	return r == -ENOSPC ? attach(shim, setup, 0) : r; /* others came in between */
}

/* What an engine cannot compute is refused now, and not in the middle of an answer. One layer may differ from another. */
static int check_formats(struct cnre *client, const struct cnre_model_info *info)
{
	for (uint32_t layer = 0; layer < info->layer_count; layer++) {
		struct cnre_colibri_view view;
		struct cnre_expert expert;
		int r = cnre_describe(client, layer, 0, &expert);

		if (r == -ENOENT)
			continue; /* a dense layer */
		if (r == 0)
			r = cnre_colibri_describe(&expert, &view);
		if (r < 0)
			return r;
	}
	return 0;
}

static int prepare(struct cnre_colibri *shim)
{
	struct cnre_model_info info = {.size = sizeof info};
	int r = cnre_model(shim->client, &info);

	if (r < 0)
		return r;
	shim->block_max = info.reserve_objects < CNRE_COLIBRI_BLOCK_MAX ? info.reserve_objects : CNRE_COLIBRI_BLOCK_MAX;
	return check_formats(shim->client, &info);
}

static void say(char *message, size_t bytes, const char *verb, const char *object, const char *reason)
{
	if (message != NULL && bytes > 0)
		(void)snprintf(message, bytes, "cnre: %s %s: %s", verb, object, reason);
}

static int make(const struct cnre_colibri_setup *setup, struct cnre_colibri **ret_shim, char *message, size_t bytes)
{
	struct cnre_colibri *shim = calloc(1, sizeof *shim);
	const char *policy = switch_or_null("COLI_CACHE_POLICY");
	int r = shim == NULL ? -ENOMEM : attach_for(shim, setup);

	if (r < 0) {
		say(message, bytes, "attach to", setup->model, cnre_colibri_explain(r));
		goto free_shim;
	}
	r = prepare(shim);
	if (r < 0) {
		say(message, bytes, "use", setup->model, cnre_colibri_explain(r));
		goto detach;
	}
	r = policy == NULL ? 0 : cnre_set_policy(shim->client, policy);
	if (r < 0) {
		say(message, bytes, "COLI_CACHE_POLICY", policy, explain_policy(r));
		goto detach;
	}
	(void)pthread_mutex_init(&shim->lock, NULL); /* cannot fail for a default mutex */
	*ret_shim = shim;
	return 1;

detach:
	cnre_detach(shim->client);
free_shim:
	free(shim);
	return r;
}

int cnre_colibri_open(struct cnre_colibri **ret_shim, const struct cnre_colibri_setup *setup, char *message, size_t message_bytes)
{
	if (ret_shim == NULL || setup == NULL || setup->model == NULL)
		return -EINVAL;
	return is_wanted(setup) ? make(setup, ret_shim, message, message_bytes) : 0;
}

void cnre_colibri_close(struct cnre_colibri *shim)
{
	if (shim == NULL)
		return;
	cnre_detach(shim->client);
	while (shim->spare != NULL) {
		struct cnre_colibri_block *next = shim->spare->next;

		free(shim->spare);
		shim->spare = next;
	}
	(void)pthread_mutex_destroy(&shim->lock);
	free(shim);
}

uint32_t cnre_colibri_block_max(const struct cnre_colibri *shim)
{
	return shim->block_max;
}

struct cnre *cnre_colibri_client(struct cnre_colibri *shim)
{
	return shim->client;
}

/* ---- blocks ---- */

static struct cnre_colibri_block *get_block(struct cnre_colibri *shim)
{
	struct cnre_colibri_block *block;

	(void)pthread_mutex_lock(&shim->lock);
	block = shim->spare;
	if (block != NULL) {
		shim->spare = block->next;
		shim->spare_count--;
	}
	(void)pthread_mutex_unlock(&shim->lock);
	return block != NULL ? block : malloc(sizeof *block);
}

static void put_block(struct cnre_colibri *shim, struct cnre_colibri_block *block)
{
	(void)pthread_mutex_lock(&shim->lock);
	if (shim->spare_count < SPARE_BLOCKS_MAX) {
		block->next = shim->spare;
		shim->spare = block;
		shim->spare_count++;
		block = NULL;
	}
	(void)pthread_mutex_unlock(&shim->lock);
	free(block);
}

/* 0, or -ENOENT for a negative id. */
static int copy_ids(uint32_t *to, const int *from, int count)
{
	for (int i = 0; i < count; i++) {
		if (from[i] < 0)
			return -ENOENT;
		to[i] = (uint32_t)from[i];
	}
	return 0;
}

int cnre_colibri_acquire(struct cnre_colibri *shim, int layer, const int *experts, int count, int token_count,
			 struct cnre_colibri_block **ret_block)
{
	uint32_t id[CNRE_COLIBRI_BLOCK_MAX];
	struct cnre_colibri_block *block;
	int r;

	if (shim == NULL || experts == NULL || count < 1 || token_count < 0 || ret_block == NULL)
		return -EINVAL;
	if (count > (int)CNRE_COLIBRI_BLOCK_MAX)
		return -E2BIG;
	r = layer < 0 ? -ENOENT : copy_ids(id, experts, count);
	if (r < 0)
		return r;
	block = get_block(shim);
	if (block == NULL)
		return -ENOMEM;
	r = cnre_batch_begin(shim->client, (uint32_t)layer, id, (uint32_t)count, (uint32_t)token_count, &block->batch);
	if (r < 0) {
		put_block(shim, block);
		return r;
	}
	block->shim = shim;
	block->count = (uint32_t)count;
	memset(block->is_taken, 0, sizeof block->is_taken);
	*ret_block = block;
	return 0;
}

int cnre_colibri_view(struct cnre_colibri_block *block, int index, struct cnre_colibri_view *ret_view)
{
	struct cnre_expert *expert;
	int r;

	if (block == NULL || index < 0 || (uint32_t)index >= block->count || ret_view == NULL)
		return -EINVAL;
	expert = &block->expert[index];
	if (!block->is_taken[index]) {
		r = cnre_batch_wait(block->batch, (uint32_t)index, WAIT_FOR_EVER, expert);
		if (r < 0)
			return r;
		block->is_taken[index] = 1;
	}
	return cnre_colibri_describe(expert, ret_view);
}

void cnre_colibri_release(struct cnre_colibri_block *block)
{
	if (block == NULL || block->count == 0)
		return; /* it was released, and is kept for the next */
	for (uint32_t i = 0; i < block->count; i++)
		if (block->is_taken[i])
			(void)cnre_release(block->shim->client, &block->expert[i]); /* ours, or we are a forked child */
	(void)cnre_batch_end(block->batch);
	block->count = 0;
	put_block(block->shim, block);
}

int cnre_colibri_prefetch(struct cnre_colibri *shim, int layer, const int *experts, int count)
{
	uint32_t id[CNRE_COLIBRI_BLOCK_MAX];
	int accepted = 0;

	if (shim == NULL || layer < 0 || experts == NULL)
		return 0;
	for (int done = 0; done < count; done += (int)CNRE_COLIBRI_BLOCK_MAX) {
		int part = count - done < (int)CNRE_COLIBRI_BLOCK_MAX ? count - done : (int)CNRE_COLIBRI_BLOCK_MAX;
		int r = copy_ids(id, experts + done, part);

		if (r == 0)
			r = cnre_prefetch(shim->client, (uint32_t)layer, id, (uint32_t)part);
		if (r > 0)
			accepted += r;
	}
	return accepted;
}

int cnre_colibri_stats(const struct cnre_colibri *shim, struct cnre_colibri_stats *ret_stats)
{
	struct cnre_stats stats = {.size = sizeof stats};
	int r = cnre_stats(shim->client, &stats);

	if (r < 0)
		return r;
	*ret_stats = (struct cnre_colibri_stats){
		.requests = stats.requests,
		.hits = stats.hits,
		.misses = stats.misses,
		.joins = stats.joins,
		.prefetched = stats.prefetched,
		.prefetch_hits = stats.prefetch_hits,
		.bytes_read = stats.bytes_read,
		.wait_ns = stats.wait_ns,
		.resident_bytes = stats.resident_bytes,
		.capacity_bytes = stats.capacity_bytes,
	};
	return 0;
}
