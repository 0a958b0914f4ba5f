/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors shards of a checkpoint directory: a table of tensors by name, and exact reads of their bytes. The
 * headers are input: every offset is checked against the file, every size against the shape. It knows no model.
 */
#ifndef ENGINE_SHARD_H
#define ENGINE_SHARD_H

#include "engine/message.h"

#include <stddef.h>
#include <stdint.h>

#define SHARD_HEADER_BYTES_MAX (256u << 20)
#define SHARD_RANK_MAX 8u

struct tensor {
	char *name;
	uint64_t file_off, bytes;         /* file_off counts from the start of the shard */
	uint64_t shape[SHARD_RANK_MAX];
	uint32_t shard;
	uint16_t rank;
	uint16_t dtype;                   /* enum cnre_dtype */
};

struct shard_file {
	char *path;
	uint64_t bytes;
	int fd;
};

struct shard_set {
	struct shard_file *file;          /* [file_count], by name */
	struct tensor *tensor;            /* [tensor_count], by name */
	size_t tensor_count;
	uint32_t file_count;
};

/*
 * shard_open - read the headers of every *.safetensors in a directory, and in those of $CNRE_DIRS (engine/places.h)
 *
 * Tensors of a type the engine has no use for (F64, I32, BOOL) are left out.
 *
 * Returns:  0, or -ENOENT (no shard), -E2BIG (beyond a bound), -EBADMSG (malformed), -ENOMEM, errors of open and
 *           read; message names shard and tensor. *ret_set is set on success only; close it with shard_close.
 */
int shard_open(struct shard_set *ret_set, const char *directory, char message[ENGINE_MESSAGE_BYTES]);
void shard_close(struct shard_set *set);

/* NULL: no such tensor. */
const struct tensor *shard_find(const struct shard_set *set, const char *name);

/* Reads exactly bytes at file_off through the page cache. Returns 0, -ENODATA (end of file), or an error of pread. */
int shard_read(const struct shard_set *set, uint32_t shard, uint64_t file_off, void *ret_data, uint64_t bytes);

/* Bytes of one element of an enum cnre_dtype; 0: unknown. */
uint32_t shard_dtype_bytes(uint16_t dtype);

#endif
