/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the payload of every object ought to be: an XXH3-64 per owner over its parts in role order, known once the object
 * was loaded for the first time or from a manifest of an earlier manager. A checkpoint's identity covers names, sizes
 * and headers only; a shard with the right header and wrong bytes is found by this, and by nothing else. XXH3 finds accidents;
 * it is no protection against somebody who can write to the checkpoint.
 *
 * The manifest is text: a line "cnre-digests 1 xxh3-64 IDENTITY" for each model (64 hexadecimal digits), followed by a
 * line "LAYER EXPERT DIGEST" (16 hexadecimal digits) for each object whose digest is known. Of a view the prepared bytes
 * are hashed, since those are what is resident; nothing is lost by preparing, so a wrong byte in the file is seen in them,
 * too. Its header line goes on " NAME.VERSION", so that bytes that lie otherwise are never compared. A digest is trusted as it was first
 * seen, so a checkpoint that was wrong from the start is found only with a manifest made elsewhere.
 *
 * Core thread only, but for digest_compute. Prints nothing.
 */
#ifndef CNRE_MANAGER_DIGEST_H
#define CNRE_MANAGER_DIGEST_H

#include "manager/manager.h"

#include <stddef.h>
#include <stdint.h>

#define DIGEST_FILE_BYTES_MAX (64u << 20) /* a million objects and more */
#define DIGEST_LINE_MAX 160u              /* bytes, newline included */

struct digest_table;

/* Of a slab whose parts are in their places. Any thread; touches nothing but its arguments. */
uint64_t digest_compute(const char *slab, const struct model_shape *shape, const struct model_plan *plan);

/*
 * digest_open - a table for the models of manager->model[], and what the manifest knows of them
 *
 * @path      manifest, which need not exist yet, but its folder must be writable then; NULL: in memory only
 * @message   on failure one line that names file and line, and says what to do
 *
 * Returns:  0, -EBADMSG (not a manifest, cut off, of an unknown version, or about objects that are not served), -ESTALE
 *           (of another model), -EFBIG, -ENOMEM, errors of open and read. *ret_table is set on success only.
 */
int digest_open(struct digest_table **ret_table, const struct manager *manager, const char *path, char *message,
		size_t message_bytes);
struct digest_table *digest_close(struct digest_table *table); /* NULL is fine */

/* The text of a manifest into a table; `file` is its name in messages. On failure the table knows nothing. */
int digest_read_text(struct digest_table *table, const char *file, const char *text, size_t bytes, char *message,
		     size_t message_bytes);

/* 1 and the digest that an object ought to have, or 0: not known. */
int digest_find(const struct digest_table *table, uint32_t owner, uint64_t *ret_digest);

/* Compares what was loaded with what is known, or remembers it: 0, or -EBADMSG and what it ought to be. */
int digest_check(struct digest_table *table, uint32_t owner, uint64_t digest, uint64_t *ret_expected);

/*
 * Writes the manifest if digests were added since it was read: beside the old one, synced, then renamed over it, so that
 * a crash leaves the one or the other. 0 (also when there was nothing to do) or -errno; then the old one is as it was.
 */
int digest_save(struct digest_table *table, char *message, size_t message_bytes);

const char *digest_path(const struct digest_table *table); /* "" where digests are in memory only */

#endif
