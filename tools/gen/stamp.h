/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file cnre-gen.json beside a generated checkpoint: the model it was made from. It is written before the first
 * shard, and shards appear complete or not at all, so an equal stamp means that every shard present is right.
 */
#ifndef CNRE_TOOLS_GEN_STAMP_H
#define CNRE_TOOLS_GEN_STAMP_H

#include "tools/gen/model.h"

#define GEN_STAMP_NAME "cnre-gen.json"

/* The text of the stamp; free it. NULL: out of memory. */
char *gen_stamp_make(const struct gen_model *model);

/* 0, or -ENOENT (no stamp), -EBADMSG (not one of ours), other errors of reading. */
int gen_stamp_read(int directory_fd, struct gen_model *ret_model);

#endif
