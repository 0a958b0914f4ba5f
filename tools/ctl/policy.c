/* SPDX-License-Identifier: Apache-2.0 */
/* cnrectl policy NAME: another residency policy, while clients run. */
#include "tools/ctl/verb.h"

#include <errno.h>

static int request(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	json_t *made;

	if (argc != 2) {
		(void)snprintf(message, CTL_MESSAGE_BYTES,
			       "needs the name of a policy, such as lru or cost; status shows the one in force");
		return -EINVAL;
	}
	made = json_pack("{s:s, s:s}", "verb", "policy", "name", argv[1]);
	if (made == NULL)
		return -ENOMEM;
	*ret_request = made;
	return 0;
}

static void print(FILE *out, struct fields *fields, const json_t *answer)
{
	fprintf(out, "policy %s: residents stay, and go in its order from now on\n", fields_string(fields, answer, "policy"));
}

const struct verb verb_policy = {
	.name = "policy",
	.arguments = "NAME",
	.summary = "decide residency by another policy from now on",
	.request = request,
	.is_order = verb_is_order,
	.print = print,
};
