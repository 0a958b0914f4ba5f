/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a checkpoint's payload is what it was: a digest that changes when any shard is written, without reading it. The
 * fingerprint (base/fingerprint.h) says whether two directories are one model by headers; that is not enough for state that
 * was computed from the weights, since a shard can be replaced by another of the same shapes.
 *
 *   payload = SHA-256 over tagged, length-prefixed fields: "cnre-payload-1", then for each *.safetensors shard in byte order
 *   of its name: name, size, time of modification in ns, and CNRE_PAYLOAD_PAGES pages spread evenly over the file.
 *
 * A copy that keeps times (cp -p, rsync -a) is the same payload, another copy is not: then state is computed again, which is
 * the safe side. Who writes other weights and sets the old time back is seen by the pages, unless he changed less than they
 * show.
 */
#ifndef CNRE_BASE_PAYLOAD_H
#define CNRE_BASE_PAYLOAD_H

#include "base/fingerprint.h"

#define CNRE_PAYLOAD_PAGES 16u            /* of each shard: 4 KiB reads, so some tenths of a second for 100 cold shards */

/*
 * Returns:  0, or as cnre_fingerprint_directory. *ret_digest is set on success only.
 * Threads:  any. Blocks.
 */
int cnre_payload_digest(const char *directory, unsigned char ret_digest[CNRE_DIGEST_BYTES]);
/* The same of shards that were listed already, sorted by name, wherever they lie. */
int cnre_payload_shards(const struct cnre_shard_at *shard, uint32_t shard_count, unsigned char ret_digest[CNRE_DIGEST_BYTES]);

#endif
