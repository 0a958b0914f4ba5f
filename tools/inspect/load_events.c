/* SPDX-License-Identifier: Apache-2.0 */
/* See load_events.h. */
#include "tools/inspect/load_events.h"

#include "tools/inspect/file_extents.h"

#include <stddef.h>

static struct load_entry *start(struct load_table *table, const struct event *event)
{
	const __u64 *argument = event->argument;

	return load_table_start(table, (uint32_t)argument[0],
				&(struct load_entry){.name = {(uint32_t)argument[1], (uint32_t)argument[2], (uint32_t)argument[3]},
						     .slab_bytes = argument[4],
						     .session = (uint32_t)argument[5],
						     .kind = (uint32_t)argument[6],
						     .queued_ns = argument[7],
						     .start_ns = event->at_ns});
}

static struct load_entry *chunk(struct load_table *table, const struct event *event)
{
	const __u64 *argument = event->argument;

	load_table_chunk(table, (uint32_t)argument[0],
			 &(struct load_chunk){.drive = (uint32_t)argument[1],
					      .device = file_extents_device((dev_t)argument[2]),
					      .inode = argument[3],
					      .file_off = argument[4],
					      .bytes = argument[5]});
	return load_table_find(table, (uint32_t)argument[0]);
}

static struct load_entry *verify(struct load_table *table, const struct event *event)
{
	struct load_entry *entry = load_table_find(table, (uint32_t)event->argument[0]);

	if (entry != NULL)
		entry->verify_ns = event->argument[1];
	return entry;
}

struct load_entry *load_events_take(struct load_table *table, const struct event *event)
{
	const __u64 *argument = event->argument;

	switch (event->kind) {
	case EVENT_LOAD_START:
		return start(table, event);
	case EVENT_LOAD_CHUNK:
		return chunk(table, event);
	case EVENT_LOAD_DONE:
		return load_table_done(table, (uint32_t)argument[0],
				       &(struct load_entry){.status = (int32_t)argument[4],
							    .bytes_read = argument[5],
							    .service_ns = argument[6],
							    .done_ns = event->at_ns});
	case EVENT_LOAD_VERIFY:
		return verify(table, event);
	case EVENT_PUBLISH:
		return load_table_publish(table, (uint32_t)argument[0], event->at_ns);
	default:
		return NULL;
	}
}
