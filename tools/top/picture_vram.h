/* SPDX-License-Identifier: Apache-2.0 */
/* What a sample says of the memory of GPUs. A manager without any, and one of an older release, says nothing. Pure. */
#ifndef CNRE_TOOLS_TOP_PICTURE_VRAM_H
#define CNRE_TOOLS_TOP_PICTURE_VRAM_H

#include "tools/ctl/fields.h"
#include "tools/top/picture.h"

/* The sample's member "vram", which top_source_take adds for a manager that was to use GPUs; *vram is zeros before. */
void picture_vram_take(struct fields *fields, const json_t *sample, struct picture_vram *vram);

/* text: the layer's string, NULL: none. The layer's other strings have been taken. 0 or -EBADMSG. */
int picture_vram_take_map(const json_t *text, struct picture_layer *layer, struct picture *picture);

#endif
