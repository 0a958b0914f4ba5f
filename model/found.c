/* SPDX-License-Identifier: Apache-2.0 */
/* Expert tensors by place; see found.h. */
#include "model/found.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

int found_open(struct found_table *table, const struct family *family, const struct family_extents *extents)
{
	*table = (struct found_table){
		.rows = extents_rows(family, extents),
		.experts = extents_experts_max(extents),
		.names = family->name_count,
	};
	CNRE_CHECK(table->names <= FAMILY_NAMES_MAX);
	CNRE_CHECK(table->rows <= MODEL_LAYERS_MAX && table->experts <= MODEL_EXPERTS_MAX);
	table->entry = calloc((size_t)table->rows * (table->experts + 1), table->names * sizeof *table->entry);
	table->routed = calloc(table->rows, sizeof *table->routed);
	if (table->entry != NULL && table->routed != NULL)
		return 0;
	found_close(table);
	return -ENOMEM;
}

void found_close(struct found_table *table)
{
	free(table->entry);
	free(table->routed);
	*table = (struct found_table){0};
}

struct found *found_at(const struct found_table *table, uint32_t row, uint32_t expert, uint32_t name)
{
	CNRE_CHECK(row < table->rows && expert <= table->experts && name < table->names);
	return &table->entry[((size_t)row * (table->experts + 1) + expert) * table->names + name];
}

const struct found *found_of(const struct found_table *table, uint32_t row, uint32_t expert, uint32_t name)
{
	const struct found *own = found_at(table, row, expert, name);
	const struct found *shared = found_at(table, row, table->experts, name);

	if (own->is_there)
		return own;
	return shared->is_there ? shared : NULL;
}

const struct found *found_any(const struct found_table *table, uint32_t row)
{
	const struct found *entry = found_at(table, row, 0, 0);
	size_t count = (size_t)(table->experts + 1) * table->names;

	for (size_t i = 0; i < count; i++)
		if (entry[i].is_there)
			return &entry[i];
	return NULL;
}
