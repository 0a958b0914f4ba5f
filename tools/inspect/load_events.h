/* SPDX-License-Identifier: Apache-2.0 */
/* The manager's probes about loads, as changes of a table of them: what the arguments of each are stands here once. */
#ifndef CNRE_TOOLS_INSPECT_LOAD_EVENTS_H
#define CNRE_TOOLS_INSPECT_LOAD_EVENTS_H

#include "tools/inspect/event.h"
#include "tools/inspect/load_table.h"

/* The load that it is about; NULL: its start was not seen, or the event is of no load. */
struct load_entry *load_events_take(struct load_table *table, const struct event *event);

#endif
