/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a checkpoint directory, and checking one that was written: shards, config.json, index and stamp. */
#ifndef CNRE_TOOLS_GEN_CHECKPOINT_H
#define CNRE_TOOLS_GEN_CHECKPOINT_H

#include "tools/gen/model.h"

#include <stdint.h>

struct gen_report {
	uint32_t shards, shards_kept;
	uint64_t bytes;                   /* of all shards */
};

/* Called after each shard that was written or checked; NULL: nobody wants to know. */
typedef void gen_progress(const char *shard, uint32_t done, uint32_t count, uint64_t bytes_so_far);

/*
 * gen_checkpoint_write - make the directory hold this model
 *
 * Shards that an interrupted run with the same model left are kept. With force everything is written anew.
 * Returns:  0, or -EEXIST (the directory holds another checkpoint), -ENOSPC (the partial file is removed) and other
 *           errors of writing; message is one line.
 */
int gen_checkpoint_write(const struct gen_model *model, const char *directory, int force, gen_progress *progress,
			 struct gen_report *ret_report, char message[GEN_MESSAGE_BYTES]);

/* Derives every byte again from the stamp. 0, or -EBADMSG (the first difference is in message) and errors of reading. */
int gen_checkpoint_verify(const char *directory, gen_progress *progress, struct gen_report *ret_report,
			  char message[GEN_MESSAGE_BYTES]);

#endif
