/* SPDX-License-Identifier: Apache-2.0 */
/* A second, simple reader of safetensors; see truth.h. */
#include "tests/support/truth.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARDS_MAX 512
#define ACQUIRE_TIMEOUT_NS 60000000000

struct shard {
	char path[512];
	unsigned char *base;
	size_t bytes, payload_off;
	json_t *header;
};

struct truth {
	uint32_t count;
	struct shard shard[SHARDS_MAX];
	json_t *where; /* tensor name -> index of its shard */
};

static int read_header(struct truth *truth, struct shard *shard, uint32_t index)
{
	uint64_t length = 0;
	const char *name;
	json_t *tensor;

	if (shard->bytes < sizeof length)
		return -EBADMSG;
	memcpy(&length, shard->base, sizeof length); /* little-endian, as this machine */
	if (length > shard->bytes - sizeof length)
		return -EBADMSG;
	shard->payload_off = sizeof length + length;
	shard->header = json_loadb((const char *)shard->base + sizeof length, length, 0, NULL);
	if (shard->header == NULL)
		return -EBADMSG;
	json_object_foreach (shard->header, name, tensor)
		(void)json_object_set_new(truth->where, name, json_integer(index));
	return 0;
}

static int add_shard(struct truth *truth, const char *path)
{
	struct shard *shard = &truth->shard[truth->count];
	struct stat status;
	int fd;

	if (truth->count == SHARDS_MAX)
		return -E2BIG;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	(void)snprintf(shard->path, sizeof shard->path, "%s", path);
	shard->bytes = fstat(fd, &status) < 0 ? 0 : (size_t)status.st_size;
	shard->base = mmap(NULL, shard->bytes, PROT_READ, MAP_SHARED, fd, 0);
	(void)close(fd); /* descriptors may be scarce where this is used; the mapping is enough */
	if (shard->base == MAP_FAILED)
		return -ENOMEM;
	return read_header(truth, shard, truth->count++);
}

int truth_open(struct truth **ret_truth, const char *directory)
{
	struct truth *truth = calloc(1, sizeof *truth);
	DIR *folder = opendir(directory);
	struct dirent *entry;
	char path[512];
	int r = truth == NULL || folder == NULL ? -ENOENT : 0;

	if (r == 0)
		truth->where = json_object();
	while (r == 0 && (entry = readdir(folder)) != NULL) {
		const char *suffix = strrchr(entry->d_name, '.');

		if (suffix == NULL || strcmp(suffix, ".safetensors") != 0)
			continue;
		(void)snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
		r = add_shard(truth, path);
	}
	if (folder != NULL)
		(void)closedir(folder);
	if (r < 0) {
		truth_close(truth);
		return r;
	}
	*ret_truth = truth;
	return 0;
}

void truth_close(struct truth *truth)
{
	if (truth == NULL)
		return;
	for (uint32_t i = 0; i < truth->count; i++) {
		(void)munmap(truth->shard[i].base, truth->shard[i].bytes);
		json_decref(truth->shard[i].header);
	}
	json_decref(truth->where);
	free(truth);
}

uint32_t truth_shards(const struct truth *truth)
{
	return truth->count;
}

/* ---- comparing ---- */

int truth_tensor(const struct truth *truth, const char *name, struct truth_tensor *ret_tensor)
{
	const json_t *at = json_object_get(truth->where, name), *tensor, *offsets, *shape;
	const struct shard *shard;
	uint64_t begin, end;

	if (at == NULL)
		return 0;
	shard = &truth->shard[json_integer_value(at)];
	tensor = json_object_get(shard->header, name);
	offsets = json_object_get(tensor, "data_offsets");
	begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
	end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
	if (begin > end || end > shard->bytes - shard->payload_off)
		return 0;
	ret_tensor->data = shard->base + shard->payload_off + begin;
	ret_tensor->bytes = end - begin;
	ret_tensor->dtype = json_string_value(json_object_get(tensor, "dtype"));
	shape = json_object_get(tensor, "shape");
	ret_tensor->rank = (uint32_t)json_array_size(shape);
	ret_tensor->last =
		ret_tensor->rank == 0 ? 0 : (uint64_t)json_integer_value(json_array_get(shape, ret_tensor->rank - 1));
	return 1;
}

static const unsigned char *find(const struct truth *truth, uint32_t layer, uint32_t expert, const char *part,
				 uint64_t *ret_bytes)
{
	struct truth_tensor tensor;
	char name[128];

	(void)snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s", layer, expert, part);
	if (!truth_tensor(truth, name, &tensor))
		return NULL;
	*ret_bytes = tensor.bytes;
	return tensor.data;
}

/* `roles` parts, beginning with `first`, lie one behind the other in one tensor. */
static int compare_tensor(const struct truth *truth, const struct cnre_expert *expert, const char *name, int first,
			  int roles)
{
	uint64_t bytes, at = 0;
	const unsigned char *data = find(truth, expert->layer, expert->expert, name, &bytes);

	if (data == NULL)
		return 1 + first;
	for (int role = first; role < first + roles; role++) {
		const struct cnre_part *part = &expert->part[role];

		if (part->bytes == 0 || part->bytes > bytes - at || memcmp(part->data, data + at, part->bytes) != 0)
			return 1 + role;
		at += part->bytes;
	}
	return at == bytes ? 0 : first + roles;
}

int truth_compare(const struct truth *truth, const struct cnre_expert *expert)
{
	static const char *const plain[] = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"};
	uint64_t bytes;
	int wrong = 0;

	if (find(truth, expert->layer, expert->expert, "merged_weight", &bytes) != NULL) {
		wrong = compare_tensor(truth, expert, "merged_weight", CNRE_GATE, 3);
		return wrong != 0 ? wrong : compare_tensor(truth, expert, "qs", CNRE_GATE_SCALE, 3);
	}
	for (int role = CNRE_GATE; role <= CNRE_DOWN && wrong == 0; role++)
		wrong = compare_tensor(truth, expert, plain[role], role, 1);
	return wrong;
}

int truth_check_one(const struct truth *truth, struct cnre *client, uint32_t layer, uint32_t expert)
{
	struct cnre_expert leased;
	int r = cnre_acquire(client, layer, expert, ACQUIRE_TIMEOUT_NS, &leased), wrong;

	if (r < 0)
		return r;
	wrong = truth_compare(truth, &leased);
	r = cnre_release(client, &leased);
	return wrong != 0 ? 1000 + wrong : r;
}

/* ---- the page cache ---- */

size_t truth_cached_pages(const struct truth *truth)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), cached = 0;

	for (uint32_t i = 0; i < truth->count; i++) {
		size_t pages = (truth->shard[i].bytes + page_bytes - 1) / page_bytes;
		unsigned char *in_core = malloc(pages);

		if (in_core != NULL && mincore(truth->shard[i].base, truth->shard[i].bytes, in_core) == 0)
			for (size_t p = 1; p + 1 < pages; p++)
				cached += in_core[p] & 1;
		free(in_core);
	}
	return cached;
}

void truth_drop_cache(const struct truth *truth)
{
	for (uint32_t i = 0; i < truth->count; i++) {
		int fd = open(truth->shard[i].path, O_RDONLY | O_CLOEXEC);

		/* A page that is mapped or dirty would stay. */
		(void)madvise(truth->shard[i].base, truth->shard[i].bytes, MADV_DONTNEED);
		if (fd < 0)
			continue;
		(void)fsync(fd);
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		(void)close(fd);
	}
}
