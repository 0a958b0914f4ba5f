/* SPDX-License-Identifier: Apache-2.0 */
/* What explain knows of the memory of GPUs, and says of it. Pure. */
#ifndef CNRE_TOOLS_CTL_EXPLAIN_VRAM_H
#define CNRE_TOOLS_CTL_EXPLAIN_VRAM_H

#include "tools/ctl/explain_sample.h"
#include "tools/ctl/fields.h"

/* Of status, and of stats, which is asked later: its counters are taken only where status said that GPUs were asked for. */
void explain_vram_take_status(struct fields *fields, const json_t *status, struct explain_vram *vram);
void explain_vram_take_stats(struct fields *fields, const json_t *stats, struct explain_vram *vram);

/* What is not as it should be, and what to do; empty: nothing. */
void explain_vram_say(const struct explain_vram *vram, char *text, size_t bytes);

#endif
