/* SPDX-License-Identifier: Apache-2.0 */
/* What the verb waits counts, and its report. */
#ifndef CNRE_TOOLS_INSPECT_WAITS_H
#define CNRE_TOOLS_INSPECT_WAITS_H

#include "tools/inspect/causes.h"
#include "tools/inspect/histogram.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/load_table.h"

#define WAITS_OPEN_MAX 4096u              /* threads that wait at once */
#define WAITS_ENDED_MAX 16384u            /* that are not looked at yet */
#define WAITS_LAYERS_MAX 4096u
#define WAITS_SETTLE_NS 20000000          /* for the manager's probes about the same load */

struct waits_open {
	uint32_t process, thread, session, layer, expert;
	uint64_t begin_ns;
};

struct waits_ended {
	uint32_t session, layer, expert;
	int32_t status;
	uint64_t waited_ns, begin_ns, end_ns; /* end_ns: when it was told */
};

struct waits_layer {
	uint32_t model, layer;
	struct histogram all;
	uint64_t cause_ns[CAUSES];
};

struct waits {
	struct load_table loads;
	uint32_t open_count, ended_count, layer_count;
	struct waits_open open[WAITS_OPEN_MAX];
	struct waits_ended ended[WAITS_ENDED_MAX];
	struct waits_layer layer[WAITS_LAYERS_MAX];
	struct histogram all, cause[CAUSES];
	uint64_t failed, joins;
};

json_t *waits_report(struct inspect *inspect);
void waits_print(FILE *out, const json_t *report);

#endif
