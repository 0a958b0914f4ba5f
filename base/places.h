/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the shards of a checkpoint lie: its own directory, which holds config.json too, and further ones on other drives with
 * other shards. Manager and client list them alike, so that both come to the same identity (base/fingerprint.h) wherever a
 * shard lies. Paths and names only: nothing stays open.
 *
 * In a further directory D the shards of a checkpoint whose own directory is called NAME lie in D/NAME if that is a directory,
 * else in D. So one D serves several checkpoints only by such folders; a manager of several models asks for them. Of one name
 * the first directory wins.
 */
#ifndef CNRE_BASE_PLACES_H
#define CNRE_BASE_PLACES_H

#include "base/fingerprint.h"

#include <stddef.h>
#include <stdint.h>

#define CNRE_PLACES_FURTHER_MAX 16u
#define CNRE_PLACES_MAX (1u + CNRE_PLACES_FURTHER_MAX)
#define CNRE_PLACES_VARIABLE "CNRE_DIRS"  /* the further directories, separated by colons as in PATH */

struct cnre_place {
	char *path;                       /* real path of the directory that is searched */
	uint32_t shard_count;             /* taken from it */
	uint32_t hidden_count;            /* not taken, since an earlier directory has one of that name */
	char *hidden;                     /* the name of the first of those */
	uint32_t hidden_by;               /* the place of that earlier one */
	int is_named;                     /* it is D/NAME */
};

struct cnre_place_shard {
	char *name;
	char *path;
	uint32_t place;
};

struct cnre_places {
	uint32_t place_count, shard_count;
	struct cnre_place place[CNRE_PLACES_MAX];
	struct cnre_place_shard *shard;   /* by bytes of the name, each name once */
};

/*
 * cnre_places_open - list the shards of a checkpoint
 *
 * @further  names of further directories, in order
 * @message  receives one line that names the directory and what is wrong; may be NULL
 *
 * Returns:  0, or -E2BIG (more than CNRE_SHARDS_MAX shards or CNRE_PLACES_FURTHER_MAX directories), -ENOMEM, errors of opening
 *           and reading a directory. No shard at all is no error here. *ret_places is set on success only.
 */
int cnre_places_open(struct cnre_places **ret_places, const char *directory, const char *const *further,
		     uint32_t further_count, char *message, size_t message_bytes);
/* As many further directories as a list separated by colons names; NULL and "" are none. -EINVAL: an empty name in it. */
int cnre_places_open_list(struct cnre_places **ret_places, const char *directory, const char *list, char *message,
			  size_t message_bytes);
struct cnre_places *cnre_places_close(struct cnre_places *places); /* NULL is fine */

/* As cnre_fingerprint_directory and cnre_payload_digest, of what was listed. */
int cnre_places_identify(const struct cnre_places *places, struct cnre_fingerprint *ret_fingerprint, char *message,
			 size_t message_bytes);
int cnre_places_digest_payload(const struct cnre_places *places, unsigned char ret_digest[CNRE_DIGEST_BYTES]);

#endif
