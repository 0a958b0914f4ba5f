/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content identity of a checkpoint directory, computed alike by the manager (for what it serves) and by every
 * client (for the directory the engine reads its dense weights from), so that two revisions of a model are never
 * mixed. It reads config.json and each shard's safetensors header, never the payload.
 *
 *   identity = SHA-256 over tagged, length-prefixed fields: "cnre-model-1", config.json's bytes, then for each
 *   *.safetensors shard in byte order of its name: name, file size (u64 LE), SHA-256 of its first 8 + n bytes.
 */
#ifndef CNRE_BASE_FINGERPRINT_H
#define CNRE_BASE_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

#define CNRE_DIGEST_BYTES 32
#define CNRE_SHARDS_MAX 4096
#ifndef CNRE_SHARD_HEADER_MAX                /* a longer header is refused before it is read; may be set when all is built */
#define CNRE_SHARD_HEADER_MAX (1ull << 30)   /* the longest known has 132 MB, for 1.29 million tensors */
#endif
#define CNRE_SHARD_HEADER_ADVICE "download it again, or build with a larger CNRE_SHARD_HEADER_MAX"
#define CNRE_CONFIG_BYTES_MAX (16u << 20)  /* the same for config.json */

struct cnre_fingerprint {
	unsigned char identity[CNRE_DIGEST_BYTES];
	unsigned char config[CNRE_DIGEST_BYTES]; /* SHA-256 of config.json alone */
	unsigned char names[CNRE_DIGEST_BYTES];  /* SHA-256 over the shard names alone */
	unsigned char first[CNRE_DIGEST_BYTES];  /* the same of those beside config.json: all, unless there are further directories */
	uint32_t shard_count;
};

/* A shard of a checkpoint whose shards may lie in several directories (base/places.h). */
struct cnre_shard_at {
	int directory_fd;
	const char *name;
	const char *shown;                       /* what messages call it */
};

/*
 * cnre_fingerprint_directory - identify a checkpoint directory
 *
 * @ret_message  receives one line that names the file and what is wrong; may be NULL
 *
 * Returns:  0, or -ENOENT (no directory, no config.json, or no shard), -EBADMSG (a shard is shorter than its header
 *           says, or the header is too long), -EMFILE and other errors of open and read.
 *           *ret_fingerprint is set on success only.
 * Threads:  any. Blocks: reads headers (megabytes for a large model). Allocates a fixed buffer of 64 KiB.
 */
int cnre_fingerprint_directory(const char *directory, struct cnre_fingerprint *ret_fingerprint, char *ret_message,
			       size_t message_bytes);

/*
 * The same of shards that were listed already, sorted by name, wherever they lie: neither the identity nor the names depend on
 * that. config.json is the one of config_fd. shard_count > 0.
 */
int cnre_fingerprint_shards(int config_fd, const struct cnre_shard_at *shard, uint32_t shard_count,
			    struct cnre_fingerprint *ret_fingerprint, char *ret_message, size_t message_bytes);

/* Sorted names of the *.safetensors files of a directory; free with cnre_fingerprint_free_names. Count or -errno. */
int cnre_fingerprint_list_shards(const char *directory, char ***ret_names);
void cnre_fingerprint_free_names(char **names, int count);

/* Lower-case hex of the first n bytes of a digest; text needs 2n + 1 bytes. */
const char *cnre_fingerprint_hex(const unsigned char *digest, size_t n, char *text);

#endif
