/* SPDX-License-Identifier: Apache-2.0 */
/* What the verb loads keeps, and how it says a line. */
#ifndef CNRE_TOOLS_INSPECT_LOADS_H
#define CNRE_TOOLS_INSPECT_LOADS_H

#include "tools/inspect/histogram.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/load_table.h"

#define LOADS_PENDING_MAX LOAD_TABLE_ROOM /* published, and not used yet */
#define LOADS_LINGER_NS 1000000000        /* so long a line waits for the first use */

struct loads {
	struct load_table table;
	uint32_t pending_count;
	uint32_t pending[LOADS_PENDING_MAX]; /* numbers of loads */
	struct load_name admitted;        /* the last one, and when: its load_start comes next */
	uint64_t admitted_ns;
	uint64_t shown, failed, refused, evicted;
	struct histogram queued, disk, verify, whole;
};

/* One object for a load that is over, or refused; a new reference. */
json_t *loads_line(const struct inspect *inspect, const struct load_entry *entry);
json_t *loads_refusal(const struct inspect *inspect, const struct load_name *name, uint64_t reason, uint64_t at_ns);
void loads_print_line(FILE *out, const json_t *line);

json_t *loads_report(struct inspect *inspect);
void loads_print(FILE *out, const json_t *report);

#endif
