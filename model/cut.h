/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One expert from the tensors that were found of it: which layout of its family they make, in which encoding each matrix
 * is, and so its parts. Pure but for the message.
 */
#ifndef CNRE_MODEL_CUT_H
#define CNRE_MODEL_CUT_H

#include "model/catalog.h"
#include "model/found.h"

#include <stdint.h>

struct cut {
	const struct family *family;
	const struct family_extents *extents;
	const struct found_table *found;
	const struct model_catalog *catalog; /* names of shards, for messages */
	char *message;                    /* MODEL_MESSAGE_BYTES */
};

struct cut_place {
	uint32_t row, expert;
	uint32_t experts;                 /* of the row: into so many slices its shared tensors are cut */
	uint32_t stem;                    /* that other tensors of the row have, for the name of one that is missing */
};

/*
 * cut_expert - the parts of an expert
 *
 * Returns:  0, or -EBADMSG with a line that names a tensor: missing, of a dtype, shape or length that no encoding of the
 *           family has, of more than one layout, or ambiguous. shape's parts and format, and object's pieces, are set then.
 */
int cut_expert(const struct cut *cut, const struct cut_place *place, struct model_shape *shape,
	       struct model_object *object);

/* The name of an expert's tensor, as it would be in this row. */
const char *cut_name(const struct cut *cut, const struct cut_place *place, uint32_t name, char *text, size_t text_bytes);

#endif
