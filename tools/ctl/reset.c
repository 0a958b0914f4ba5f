/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl reset: a cold cache for measurements. Counters are never reset: take differences. */
#include "tools/ctl/verb.h"

#include "tools/ctl/format.h"

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	char evicted[FORMAT_BYTES], kept[FORMAT_BYTES];

	fprintf(out, "%s experts evicted, %s kept (leased or being read)\n",
		format_count(fields_number(fields, answer, "evicted"), evicted),
		format_count(fields_number(fields, answer, "kept"), kept));
}

const struct verb verb_reset = {
	.name = "reset",
	.arguments = "",
	.summary = "evict every expert that is not leased; counters stay",
	.request = verb_request_bare,
	.is_order = verb_is_order,
	.print = print,
};
