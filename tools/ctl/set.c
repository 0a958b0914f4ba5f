/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl set ram SIZE, set kv-ram SIZE, set vram SIZE: changes a budget while clients run. */
#include "tools/ctl/verb.h"

#include "base/size.h"
#include "tools/ctl/format.h"

#include <errno.h>
#include <string.h>

static int request(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	json_t *made;
	uint64_t bytes;

	if (argc != 3) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "needs a setting and its value: set ram SIZE, set kv-ram SIZE, or set vram SIZE");
		return -EINVAL;
	}
	if (strcmp(argv[1], "ram") != 0 && strcmp(argv[1], "kv-ram") != 0 && strcmp(argv[1], "vram") != 0) {
		(void)snprintf(message, CTL_MESSAGE_BYTES, "%.64s: no such setting: ram, kv-ram and vram can be set", argv[1]);
		return -EINVAL;
	}
	if (cnre_size_parse(argv[2], &bytes) < 0) {
		(void)snprintf(message, CTL_MESSAGE_BYTES,
			       "%.16s %.64s: not a size: write bytes or a number with K, M, G or T", argv[1], argv[2]);
		return -EINVAL;
	}
	made = json_pack("{s:s, s:s, s:s}", "verb", "set", "key", argv[1], "value", argv[2]);
	if (made == NULL)
		return -ENOMEM;
	*ret_request = made;
	return 0;
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	char budget[FORMAT_BYTES], resident[FORMAT_BYTES];

	fprintf(out, "budget %s, resident %s%s\n", format_bytes(fields_number(fields, answer, "budget_bytes"), budget),
		format_bytes(fields_number(fields, answer, "resident_bytes"), resident),
		fields_boolean(fields, answer, "trimming") ? ": still giving memory back (leased experts leave last)"
							   : "");
}

const struct verb verb_set = {
	.name = "set",
	.arguments = "ram SIZE | kv-ram SIZE | vram SIZE",
	.summary = "change a budget now; clients go on",
	.request = request,
	.is_order = verb_is_order,
	.print = print,
};
