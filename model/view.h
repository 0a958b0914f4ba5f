/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prepared objects. A view is a layout that no file has and that an engine computes from directly. It is made once of an
 * object's bytes, before anybody sees them, and then shared as the bytes of the checkpoint are. A family declares the views
 * that its engines may ask for (family.h); a new one is a new file with one struct.
 *
 * A checkpoint in a view is a catalog of its own, over the same objects and shards: its shapes and the places in its plans
 * are those of the prepared parts. What a part's dtype, rows, columns and block_* mean in a view is said by the view
 * (doc/shared-memory.md has them all). Name and version together say how the bytes lie: whoever keeps prepared bytes, or
 * something computed of them alone, keeps both beside the checkpoint's identity.
 */
#ifndef CNRE_MODEL_VIEW_H
#define CNRE_MODEL_VIEW_H

#include "model/catalog.h"

#include <stdint.h>

#define MODEL_VIEW_NAME_BYTES 28u         /* with its end: as much as the catalog that clients map has room for */

struct model_view {
	const char *name;                 /* "rows16": what clients ask for */
	uint32_t version;                 /* another one with every change of how the bytes lie; never 0 */

	/*
	 * What the parts of an object of this shape become: part[] of ret_shape, which is zeros before. 0, -ENOTSUP (the view is
	 * not for such parts) or -E2BIG (a part would be larger than MODEL_OBJECT_BYTES_MAX). The shape is input.
	 */
	int (*shape)(const struct model_shape *raw, struct model_shape *ret_shape);

	/*
	 * Writes every byte of every prepared part, `to` (at multiples of 64), from the parts of the checkpoint, `from` (at any
	 * address). They do not overlap. raw is a shape that `shape` took. On any thread; touches nothing but its arguments.
	 */
	void (*prepare)(const struct model_shape *raw, const unsigned char *const from[MODEL_ROLES],
			unsigned char *const to[MODEL_ROLES]);
};

extern const struct model_view view_rows16;

/* A view that the family of a catalog declares, or NULL. */
const struct model_view *model_view_find(const struct model_catalog *catalog, const char *name);
/* Names of all that it declares, separated by commas, for messages; "none" where there are none. */
const char *model_view_list(const struct model_catalog *catalog, char *text, size_t text_bytes);

/*
 * model_view_open - the catalog of a checkpoint in a view
 *
 * Borrows from source, which must outlive it. Closed by model_catalog_close.
 * Returns:  0, or -ENOTSUP (some object has a format that the view is not for), -E2BIG, -ENOMEM, and one line in message.
 *           *ret_catalog is set on success only.
 */
int model_view_open(struct model_catalog **ret_catalog, const struct model_catalog *source, const struct model_view *view,
		    char message[MODEL_MESSAGE_BYTES]);
struct model_catalog *model_view_close(struct model_catalog *catalog);

/*
 * The second half of model_plan: turns the plan of the object as in the checkpoint into that of the view. There are no moves:
 * preparing takes the parts from where they landed, raw_off, and part_off is where it puts them. The slab has room for
 * either, so they may overlap: the prepared object is made elsewhere first (model_view_prepare).
 */
void model_view_plan(const struct model_catalog *catalog, uint32_t object, struct model_plan *plan);

/* Room for the largest prepared object of a catalog, from the first byte of its first part to the last of its last. */
uint64_t model_view_image_bytes(const struct model_catalog *catalog);

/*
 * From a slab as it was read to an image of the prepared object, whose parts lie at part_off. The image is aligned to 64
 * and does not overlap the slab; between parts it is left as it was. Any thread.
 */
void model_view_prepare(const struct model_catalog *catalog, uint32_t object, const struct model_plan *plan,
			const char *slab, char *image);

#endif
