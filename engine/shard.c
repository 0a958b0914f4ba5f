/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See shard.h. The header is JSON after an 8-byte little-endian length; data_offsets count from the end of the
 * header.
 */
#include "engine/shard.h"

#include "cnre/cnre.h"
#include "engine/places.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARD_ADVICE "remove it, or copy it from the checkpoint's source again"

static const struct {
	const char *name;
	uint16_t dtype;
	uint16_t bytes;
} dtypes[] = {
	{"BF16", CNRE_BF16, 2}, {"F16", CNRE_F16, 2},         {"F32", CNRE_F32, 4}, {"U8", CNRE_U8, 1},
	{"I8", CNRE_I8, 1},     {"F8_E4M3", CNRE_F8_E4M3, 1}, {"I64", CNRE_I64, 8}, {"F8_E8M0", CNRE_F8_E8M0, 1},
};

uint32_t shard_dtype_bytes(uint16_t dtype)
{
	for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
		if (dtypes[i].dtype == dtype)
			return dtypes[i].bytes;
	return 0;
}

/* 0: a type we have no use for. */
static uint16_t dtype_of(const char *name)
{
	for (size_t i = 0; name && i < sizeof dtypes / sizeof dtypes[0]; i++)
		if (strcmp(dtypes[i].name, name) == 0)
			return dtypes[i].dtype;
	return 0;
}

int shard_read(const struct shard_set *set, uint32_t shard, uint64_t file_off, void *ret_data, uint64_t bytes)
{
	char *to = ret_data;

	while (bytes > 0) {
		ssize_t got = pread(set->file[shard].fd, to, bytes, (off_t)file_off);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -ENODATA;
		to += got;
		file_off += (uint64_t)got;
		bytes -= (uint64_t)got;
	}
	return 0;
}

/* Fills shape and returns the elements, or -EBADMSG. */
static int64_t read_shape(struct tensor *tensor, const json_t *shape)
{
	uint64_t elements = 1;

	if (!json_is_array(shape) || json_array_size(shape) > SHARD_RANK_MAX)
		return -EBADMSG;
	tensor->rank = (uint16_t)json_array_size(shape);
	for (size_t i = 0; i < tensor->rank; i++) {
		const json_t *extent = json_array_get(shape, i);

		if (!json_is_integer(extent) || json_integer_value(extent) < 0)
			return -EBADMSG;
		tensor->shape[i] = (uint64_t)json_integer_value(extent);
		if (__builtin_mul_overflow(elements, tensor->shape[i], &elements) || elements > INT64_MAX)
			return -EBADMSG;
	}
	return (int64_t)elements;
}

/* Checks one header entry against its file; 1: filled, 0: a type we skip. */
static int read_entry(struct tensor *tensor, const json_t *entry, const struct shard_file *file, uint64_t data_off)
{
	const json_t *range = json_object_get(entry, "data_offsets");
	const json_t *begin = json_array_get(range, 0), *end = json_array_get(range, 1);
	uint64_t from = (uint64_t)json_integer_value(begin), to = (uint64_t)json_integer_value(end);
	int64_t elements = read_shape(tensor, json_object_get(entry, "shape"));
	uint64_t bytes;

	if (elements < 0 || !json_is_integer(begin) || !json_is_integer(end) || json_array_size(range) != 2 ||
	    json_integer_value(begin) < 0 || to < from || to > file->bytes - data_off)
		return -EBADMSG;
	tensor->dtype = dtype_of(json_string_value(json_object_get(entry, "dtype")));
	if (tensor->dtype == 0)
		return json_is_string(json_object_get(entry, "dtype")) ? 0 : -EBADMSG;
	if (__builtin_mul_overflow((uint64_t)elements, shard_dtype_bytes(tensor->dtype), &bytes) || bytes != to - from)
		return -EBADMSG;
	tensor->file_off = data_off + from;
	tensor->bytes = bytes;
	return 1;
}

static int add_tensors(struct shard_set *set, uint32_t shard, json_t *header, uint64_t data_off, char *message)
{
	size_t room = set->tensor_count + json_object_size(header);
	struct tensor *grown = reallocarray(set->tensor, room + 1, sizeof *grown);
	const char *name;
	json_t *entry;

	if (!grown)
		return engine_fail(message, -ENOMEM, "out of memory for the tensor table");
	set->tensor = grown;
	json_object_foreach (header, name, entry) {
		struct tensor tensor = {.shard = shard};
		int kept;

		if (strcmp(name, "__metadata__") == 0)
			continue;
		kept = read_entry(&tensor, entry, &set->file[shard], data_off);
		if (kept < 0)
			return engine_fail(message, kept,
					   "%.200s: tensor %.120s: dtype, shape and data_offsets do not "
					   "agree with each other or with the file",
					   set->file[shard].path, name);
		if (kept == 0)
			continue;
		tensor.name = strdup(name);
		if (!tensor.name)
			return engine_fail(message, -ENOMEM, "out of memory for the tensor table");
		set->tensor[set->tensor_count++] = tensor;
	}
	return 0;
}

static int read_header(struct shard_set *set, uint32_t shard, char *message)
{
	const char *path = set->file[shard].path;
	uint64_t length = 0;
	json_error_t reason;
	json_t *header;
	char *text;
	int error = shard_read(set, shard, 0, &length, sizeof length);

	length = le64toh(length);
	if (error < 0 || length > SHARD_HEADER_BYTES_MAX || length > set->file[shard].bytes - sizeof length)
		return engine_fail(message, -EBADMSG, "%.300s: not a whole safetensors file (header length); "
				   SHARD_ADVICE, path);
	text = malloc(length + 1);
	if (!text)
		return engine_fail(message, -ENOMEM, "%.300s: out of memory for its header", path);
	error = shard_read(set, shard, sizeof length, text, length);
	if (error < 0) {
		free(text);
		return engine_fail(message, error, "%.300s: cannot read its header: %s", path, strerror(-error));
	}
	header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &reason);
	free(text);
	if (!json_is_object(header)) {
		json_decref(header);
		return engine_fail(message, -EBADMSG, "%.200s: header: %.160s; " SHARD_ADVICE, path,
				   header ? "not an object" : reason.text);
	}
	error = add_tensors(set, shard, header, sizeof length + length, message);
	json_decref(header);
	return error;
}

static int open_file(struct shard_file *file, const char *path, char *message)
{
	struct stat status;
	int error;

	file->path = strdup(path);
	if (!file->path)
		return engine_fail(message, -ENOMEM, "out of memory for file names");
	file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
	if (file->fd < 0 || fstat(file->fd, &status) < 0) {
		error = -errno;
		return engine_fail(message, error, "cannot open %.300s: %s", file->path, strerror(-error));
	}
	if (!S_ISREG(status.st_mode) || status.st_size < (off_t)sizeof(uint64_t))
		return engine_fail(message, -EBADMSG, "%.300s: not a safetensors file; " SHARD_ADVICE, file->path);
	file->bytes = (uint64_t)status.st_size;
	return 0;
}

static int by_name(const void *left, const void *right)
{
	return strcmp(((const struct tensor *)left)->name, ((const struct tensor *)right)->name);
}

static int sort_tensors(struct shard_set *set, char *message)
{
	if (set->tensor_count == 0)
		return engine_fail(message, -EBADMSG, "the shards hold no tensor that the engine can read");
	qsort(set->tensor, set->tensor_count, sizeof *set->tensor, by_name);
	for (size_t i = 1; i < set->tensor_count; i++)
		if (strcmp(set->tensor[i - 1].name, set->tensor[i].name) == 0)
			return engine_fail(message, -EBADMSG, "tensor %.300s stands in two shards; remove one of them",
					   set->tensor[i].name);
	return 0;
}

static int open_files(struct shard_set *set, const struct places *places, const char *directory, char *message)
{
	if (places->count == 0)
		return engine_fail(message, -ENOENT,
				   "%.300s: no *.safetensors in it; --model takes a checkpoint directory", directory);
	set->file = calloc(places->count, sizeof *set->file);
	if (!set->file)
		return engine_fail(message, -ENOMEM, "out of memory for the shard table");
	for (uint32_t i = 0; i < places->count; i++) {
		int error;

		set->file[i].fd = -1;
		set->file_count++;
		error = open_file(&set->file[i], places->shard[i].path, message);
		if (error == 0)
			error = read_header(set, i, message);
		if (error < 0)
			return error;
	}
	return sort_tensors(set, message);
}

int shard_open(struct shard_set *ret_set, const char *directory, char message[ENGINE_MESSAGE_BYTES])
{
	struct shard_set set = {0};
	struct places places;
	int error = places_list(&places, directory, getenv(PLACES_VARIABLE), message);

	if (error < 0)
		return error;
	error = open_files(&set, &places, directory, message);
	places_free(&places);
	if (error < 0)
		shard_close(&set);
	else
		*ret_set = set;
	return error;
}

void shard_close(struct shard_set *set)
{
	for (uint32_t i = 0; i < set->file_count; i++) {
		if (set->file[i].fd >= 0)
			(void)close(set->file[i].fd); /* read only: nothing can be lost */
		free(set->file[i].path);
	}
	for (size_t i = 0; i < set->tensor_count; i++)
		free(set->tensor[i].name);
	free(set->file);
	free(set->tensor);
	*set = (struct shard_set){0};
}

static int against_name(const void *name, const void *tensor)
{
	return strcmp(name, ((const struct tensor *)tensor)->name);
}

const struct tensor *shard_find(const struct shard_set *set, const char *name)
{
	return bsearch(name, set->tensor, set->tensor_count, sizeof *set->tensor, against_name);
}
